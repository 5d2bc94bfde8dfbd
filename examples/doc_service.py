"""A search service over the documentation texts of Python's standard library.

A document is the docstring of a module, or of a public function or class of one, named
`subprocess` or `subprocess.run`. The texts are taken from the source files of the running
Python, which are parsed and never imported; modules written in C have none.
"""

import ast
import json
import re
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rank_bm25 import BM25Okapi

SHORTEST_TEXT = 80
"""Characters; what is shorter says little more than its name."""
RESULTS = 5
_LEFT_OUT = {"antigravity", "idlelib", "lib2to3", "test", "this", "turtledemo"}
_WORD = re.compile(r"[a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class DocIndex:
    """All documents, and which of them fit a query best."""

    def __init__(self, documents: dict[str, str]) -> None:
        """Index the texts, by id; a document's name counts three times."""
        self.documents = documents
        self._ids = list(documents)
        self._bm25 = BM25Okapi([_words(name) * 3 + _words(documents[name]) for name in self._ids])

    def search(self, query: str) -> list[dict[str, str]]:
        """Return the best documents' ids and first lines, best first, ties in order of id."""
        scores = self._bm25.get_scores(_words(query))
        best = sorted(range(len(self._ids)), key=lambda position: -scores[position])[:RESULTS]
        found = [self._ids[position] for position in best if scores[position] > 0]
        return [{"doc_id": name, "title": self.documents[name].split("\n")[0]} for name in found]


@lru_cache(maxsize=1)
def stdlib_index() -> DocIndex:
    """Read and index the standard library; takes about a second, once per process."""
    documents: dict[str, str] = {}
    for name in sorted(sys.stdlib_module_names - _LEFT_OUT):
        if not name.startswith("_"):
            documents.update(_documents_of(name))
    return DocIndex(documents)


def _documents_of(module: str) -> Iterator[tuple[str, str]]:
    """Yield the id and text of each documented public thing of a module."""
    folder = Path(sysconfig.get_path("stdlib"))
    sources = (folder / f"{module}.py", folder / module / "__init__.py")
    source = next((each for each in sources if each.is_file()), None)
    if source is None:
        return
    tree = ast.parse(source.read_text("utf-8"))
    named: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]
    named = [(module, tree)]
    named += [
        (f"{module}.{each.name}", each)
        for each in tree.body
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not each.name.startswith("_")
    ]
    for name, node in named:
        text = ast.get_docstring(node) or ""
        if len(text) >= SHORTEST_TEXT:
            yield name, text


def _words(text: str) -> list[str]:
    """Split a text into lower-case words, and names like `TimeoutExpired` into theirs."""
    return _WORD.findall(_CAMEL.sub(" ", text).lower())


@contextmanager
def serving(index: DocIndex, delay_s: float) -> Iterator[str]:
    """Serve `/search?query=` and `/doc?id=` as JSON on this machine; yields the address.

    Every answer takes `delay_s` seconds more, which stand for a network and a busy server.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(delay_s)
            asked = urlsplit(self.path)
            value = parse_qs(asked.query).get("query" if asked.path == "/search" else "id", [""])[0]
            if asked.path == "/search":
                self._answer(200, index.search(value))
            elif asked.path == "/doc" and value in index.documents:
                self._answer(200, index.documents[value])
            else:
                self._answer(404, f"there is no document {value!r}: search for its id first")

        def _answer(self, status: int, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay quiet: the example prints what the tools brought."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Forget clients that left: a guess that turned out wrong hangs up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
