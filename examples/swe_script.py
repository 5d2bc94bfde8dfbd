"""The scripted models of `swe_agent.py`: one that finds the bug, one that guesses its next call.

Both read the same messages. The draft follows habits ("after a listing, read the README"), so it
is wrong wherever the main model has a better idea.
"""

import re
from collections import Counter
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from scripted import call, exchanges, say

_TEST_FILE = re.compile(r"^\s*File \"(tests/[^\"]+)\", line \d+, in \w+\n\s*(.+)", re.MULTILINE)
_METHOD = re.compile(r"\w\.(?!assert)(\w+)\(")
_HIT_FILE = re.compile(r"^([\w/]+\.py):\d+:", re.MULTILINE)
_TRUNCATING_DIVISION = re.compile(r"^(.*)\bint\((\w+) \* (\w+) / (\w+)\)(.*)$", re.MULTILINE)


class Notes:
    """What an agent has learnt so far, read from its messages."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self.turns = exchanges(messages)
        self.all = [pair for turn in self.turns for pair in turn]
        self.last = self.turns[-1] if self.turns else []

    def latest(self, name: str) -> str:
        """Return the text the latest call of a tool brought."""
        return next(text for made, text in reversed(self.all) if made["name"] == name)

    def texts(self) -> dict[str, str]:
        """Return the files read so far, by path."""
        return {
            made["args"]["path"]: text for made, text in self.all if made["name"] == "read_file"
        }

    def failure(self) -> tuple[str, str]:
        """Return the test file that failed, and the method its failing line calls first."""
        path, line = _TEST_FILE.findall(self.latest("run_tests"))[-1]
        return path, _METHOD.findall(line)[0]

    def hit_files(self) -> list[str]:
        """Return the files the latest search hit that were not read yet, in order."""
        paths = dict.fromkeys(_HIT_FILE.findall(self.latest("grep")))
        return [path for path in paths if path not in self.texts()]


def main_turn(messages: Sequence[BaseMessage]) -> AIMessage:
    """Write the main model's next turn: a step each, down to the bug and out again."""
    notes = Notes(messages)
    steps = (_look, _run, _open_the_test, _follow_the_method, _go_deeper, _edit, _check, _finish)
    return steps[min(len(notes.turns), len(steps) - 1)](notes)


def _look(_: Notes) -> AIMessage:
    return say(
        "I'll start with the layout of the project, so that I know which module does what and "
        "where its tests are, before I run anything.",
        call("list_files", path="."),
    )


def _run(notes: Notes) -> AIMessage:
    count = len(notes.latest("list_files").splitlines())
    return say(
        f"There are {count} files: a small package and its unit tests. Next I run the tests to "
        "see which of them fails, and how.",
        call("run_tests"),
    )


def _open_the_test(notes: Notes) -> AIMessage:
    path, method = notes.failure()
    return say(
        f"One test in {path} fails, on a line that calls {method}(). I need the test in full to "
        f"see what it expects, and every place that mentions {method}, to see who computes it.",
        call("read_file", path=path),
        call("grep", pattern=method, path="."),
    )


def _follow_the_method(notes: Notes) -> AIMessage:
    paths = notes.hit_files()
    return say(
        f"Apart from the test itself, it is mentioned in {' and '.join(paths)}. I read them "
        "together: one defines it, and the others show what the callers rely on.",
        *(call("read_file", path=path) for path in paths),
    )


def _go_deeper(notes: Notes) -> AIMessage:
    _, method = notes.failure()
    text = next(text for text in notes.texts().values() if f"def {method}(" in text)
    helper, module = _helper_of(method, text)
    return say(
        f"{method}() only passes its numbers on to {helper}(), which it imports from another "
        "module. If cents get lost, they get lost in there, so this is the next thing to read.",
        call("read_file", path=module),
    )


def _helper_of(method: str, text: str) -> tuple[str, str]:
    """Return the imported function a method calls, and the file it comes from."""
    body = text.split(f"def {method}(", 1)[1]
    for module, names in re.findall(r"^from ([\w.]+) import (.+)$", text, re.MULTILINE):
        for name in names.split(", "):
            if f"{name}(" in body:
                return name, module.replace(".", "/") + ".py"
    msg = f"{method!r} calls nothing that its module imports"
    raise LookupError(msg)


def _edit(notes: Notes) -> AIMessage:
    path, found = next(
        (path, found)
        for path, text in notes.texts().items()
        if (found := _TRUNCATING_DIVISION.search(text))
    )
    before, amount, weight, whole, after = found.groups()
    return say(
        "Found it. int() cuts towards zero, so a negative amount leaves a negative rest, and the "
        "loop that hands out the rest never runs. Floor division always leaves zero or more.",
        call(
            "edit_file",
            path=path,
            old=found.group(0),
            new=f"{before}{amount} * {weight} // {whole}{after}",
        ),
    )


def _check(_: Notes) -> AIMessage:
    return say("Now all tests again, since other modules use this function too.", call("run_tests"))


def _finish(notes: Notes) -> AIMessage:
    edited = next(made["args"] for made, _ in notes.all if made["name"] == "edit_file")
    verdict = notes.latest("run_tests").splitlines()[-1]
    return say(
        f"Fixed in {edited['path']}: `{edited['new'].strip()}`. Credit notes now add up to the "
        f"cent, and invoices are split as before. The tests say: {verdict}."
    )


def draft_turn(messages: Sequence[BaseMessage]) -> AIMessage:
    """Guess the main model's next calls from what the last turn's tools returned."""
    notes = Notes(messages)
    if not notes.turns:
        return say("", call("list_files", path="."))
    habits = {
        "list_files": _read_the_readme,
        "run_tests": _read_the_failure,
        "grep": _read_the_hits,
        "read_file": _read_the_imports,
        "edit_file": _read_the_result,
    }
    return say("", *habits[notes.last[-1][0]["name"]](notes))


def _read_the_readme(notes: Notes) -> list[ToolCall]:
    listed = notes.latest("list_files").splitlines()
    return [call("read_file", path=path) for path in listed if path.startswith("README")]


def _read_the_failure(notes: Notes) -> list[ToolCall]:
    if "FAIL" not in notes.latest("run_tests"):
        return []
    path, method = notes.failure()
    return [call("read_file", path=path), call("grep", pattern=method, path=".")]


def _read_the_hits(notes: Notes) -> list[ToolCall]:
    return [call("read_file", path=path) for path in notes.hit_files()[:2]]


def _read_the_imports(notes: Notes) -> list[ToolCall]:
    modules = Counter(
        module.replace(".", "/") + ".py"
        for _, text in notes.last
        for module in re.findall(r"^from (billing\.\w+) import", text, re.MULTILINE)
    )
    unread = [path for path, _ in modules.most_common() if path not in notes.texts()]
    return [call("read_file", path=path) for path in unread[:2]]


def _read_the_result(notes: Notes) -> list[ToolCall]:
    return [call("read_file", path=notes.last[-1][0]["args"]["path"])]
