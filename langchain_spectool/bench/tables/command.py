"""`spectool bench tables`: rewrites what stands between two marks, or says that it is stale."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from langchain_spectool.bench.tables.blocks import BLOCKS
from langchain_spectool.bench.tables.schema import RESULTS, Results, read_results
from langchain_spectool.errors import SpectoolError

_BEGIN: Final = re.compile(r"^<!-- table: (?P<name>[\w-]+) -->$", re.MULTILINE)
_END: Final = "<!-- end table -->"

Blocks = Mapping[str, Callable[[Results], str]]


def main(argv: Sequence[str]) -> int:
    """Rewrite the documents; with `--check` change nothing and return 1 where one is stale.

    Raises:
        SpectoolError: A result cannot be read, or a document marks a table that is not known.
        SystemExit: The arguments are wrong (code 2), or ask for help (code 0).
    """
    parser = argparse.ArgumentParser(
        prog="spectool bench tables",
        description=f"Writes the documents' tables from {RESULTS}/*.json and the engine's proof.",
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with status 1 if one is stale"
    )
    parser.add_argument(
        "--root", type=Path, default=Path(), metavar="DIR", help="the checkout (default: here)"
    )
    given = parser.parse_args(argv)
    stale = list(_stale(given.root, read_results(given.root)))
    for path, text, names in stale:
        if given.check:
            print(f"{path}: stale: {', '.join(names)}; run `make tables`", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"{path}: {', '.join(names)}")
    return 1 if stale and given.check else 0


def documents(root: Path) -> list[Path]:
    """Return the documents that may hold tables."""
    return [
        root / "README.md",
        root / "engine" / "proof" / "README.md",
        *sorted((root / "docs").glob("*.md")),
    ]


def _stale(root: Path, results: Results) -> Iterator[tuple[Path, str, list[str]]]:
    """Yield every document whose tables are not those of the results: its new text, and which."""
    for path in documents(root):
        before = path.read_text("utf-8")
        after, names = rewritten(before, results, BLOCKS, str(path))
        if names:
            yield path, after, names


def rewritten(
    text: str, results: Results, blocks: Blocks, where: str = ""
) -> tuple[str, list[str]]:
    """Return `text` with its tables written anew, and the names of those that changed.

    Raises:
        SpectoolError: A table is not known, or has no end.
    """
    parts: list[str] = []
    changed: list[str] = []
    at = 0
    while begin := _BEGIN.search(text, at):
        name, end = begin["name"], text.find(_END, begin.end())
        following = _BEGIN.search(text, begin.end())
        if end < 0 or (following is not None and following.start() < end):
            msg = f"{where}: table {name!r} has no `{_END}`"
            raise SpectoolError(msg)
        if name not in blocks:
            msg = f"{where}: there is no table {name!r}; known are {', '.join(sorted(blocks))}"
            raise SpectoolError(msg)
        body = f"\n{blocks[name](results).strip()}\n"
        if body != text[begin.end() : end]:
            changed.append(name)
        parts += [text[at : begin.end()], body]
        at = end
    return "".join([*parts, text[at:]]), changed
