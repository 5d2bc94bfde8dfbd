"""An agent that fixes a failing test in a small project.

Listing, reading and searching are declared safe to run early; editing and running the tests are
not. The project is copied to a temporary folder, edited there for real, and its tests are run
for real. A disk answers at once, so every tool first waits TOOL_DELAY_S, which stands for the
round trip to a remote sandbox. Try `python examples/swe_agent.py --help`.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_forms import agent_form, graph_form
from example import Example, run_from_command_line
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, ToolException, tool
from scripted import DRAFT_TOKENS_PER_S, TOKENS_PER_S, paced
from swe_script import draft_turn, main_turn

from langchain_spectool import Observer, Speculation, speculatable

TOOL_DELAY_S = 0.6
"""Round trip to the sandbox the tools would run in."""
TEST_LIMIT_S = 60
TEMPLATE = Path(__file__).with_name("broken_project")
PROMPT = (
    "You repair Python projects. Look before you edit, change as little as possible, and run "
    "the tests after your edit. Paths are relative to the project's folder."
)
TASK = "`python -m unittest` fails in this project. Find the bug, fix it, and show that it's gone."


def build_agent(  # noqa: PLR0913 - all but the first have defaults
    speculative: bool,  # noqa: FBT001 - which of the two arms: the one thing to choose
    *,
    model: BaseChatModel | None = None,
    draft: BaseChatModel | None = None,
    plain_graph: bool = False,
    speed: float = 1.0,
    observers: Sequence[Observer] = (),
) -> Example:
    """Copy the project and build the agent that repairs the copy.

    Without a model both models are scripted; `speed` divides every stated delay. The `observers`
    hear what speculation decides.
    """
    if model is None:
        model = paced(main_turn, TOKENS_PER_S * speed)
        draft = paced(draft_turn, DRAFT_TOKENS_PER_S * speed)
    folder = tempfile.TemporaryDirectory(prefix="spectool-swe-")
    project = Path(folder.name).resolve() / "project"
    shutil.copytree(TEMPLATE, project, ignore=shutil.ignore_patterns("__pycache__"))
    form = graph_form if plain_graph else agent_form
    tools = project_tools(project, TOOL_DELAY_S / speed)
    # Without a draft, calls start from the main model's own stream.
    speculation = Speculation(tools, draft=draft, observers=observers) if speculative else None
    return Example(
        name="swe_agent",
        graph=form(model, tools, PROMPT, speculation),
        inputs={"messages": [("user", TASK)]},
        speculation=speculation,
        goal="all tests of the project pass",
        verify=lambda _: test_output(project).endswith("OK"),
        close=folder.cleanup,
    )


def project_tools(project: Path, delay_s: float) -> list[BaseTool]:
    """Make the tools of one project; what is outside its folder stays out of reach."""
    fresh = freshness_in(project)

    @speculatable(freshness=fresh)
    @tool
    def list_files(path: str = ".") -> str:
        """List all files under a folder of the project."""
        time.sleep(delay_s)
        return "\n".join(_relative(project, each) for each in _files(_inside(project, path)))

    @speculatable(freshness=fresh)
    @tool
    def read_file(path: str) -> str:
        """Read one file of the project."""
        time.sleep(delay_s)
        return _text_of(_inside(project, path))

    @speculatable(freshness=fresh)
    @tool
    def grep(pattern: str, path: str = ".") -> str:
        """Find the lines that match a regular expression, as path:line:text."""
        time.sleep(delay_s)
        return _matches(project, pattern, _inside(project, path))

    @tool
    def edit_file(path: str, old: str, new: str) -> str:
        """Replace a text that occurs exactly once in a file."""
        time.sleep(delay_s)
        return _replace_once(_inside(project, path), old, new)

    @tool
    def run_tests() -> str:
        """Run all tests of the project."""
        time.sleep(delay_s)
        return test_output(project)

    tools: list[BaseTool] = [list_files, read_file, grep, edit_file, run_tests]
    for each in tools:
        each.handle_tool_error = True  # the model is told what went wrong, and tries again
    return tools


def test_output(project: Path) -> str:
    """Run the project's tests and return what they print, without times and temporary paths."""
    ran = subprocess.run(
        [sys.executable, "-B", "-m", "unittest"],
        cwd=project,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TEST_LIMIT_S,
        check=False,
    )
    text = ran.stdout.replace(f"{project}{os.sep}", "").strip()
    return re.sub(r"(?m)^(Ran \d+ tests?) in .*$", r"\1", text)


def _inside(project: Path, path: str) -> Path:
    """Return where a path of the model's leads.

    Raises:
        ToolException: It leads out of the project, by "..", from "/" or through a link.
    """
    try:
        target = (project / path).resolve()
    except (OSError, ValueError) as error:
        msg = f"{path!r} is not a path: {error}"
        raise ToolException(msg) from error
    if not target.is_relative_to(project):
        msg = f"{path!r} is outside the project: use paths relative to its folder"
        raise ToolException(msg)
    return target


def freshness_in(project: Path) -> Callable[[Mapping[str, Any]], str]:
    """Make the function that says which state of the files a call would read."""

    def fingerprint(args: Mapping[str, Any]) -> str:
        digest = hashlib.sha256()
        for each in _files(_inside(project, args.get("path", "."))):
            status = each.stat()
            digest.update(f"{each}\0{status.st_mtime_ns}\0{status.st_size}\n".encode())
        return digest.hexdigest()

    return fingerprint


def _files(target: Path) -> list[Path]:
    """Return the file itself, or all files under a folder in order."""
    if target.is_file():
        return [target]
    return sorted(each for each in target.rglob("*") if each.is_file() and not each.is_symlink())


def _relative(project: Path, file: Path) -> str:
    return file.relative_to(project).as_posix()


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file.name!r} cannot be read: {type(error).__name__}; see list_files"
        raise ToolException(msg) from error


def _matches(project: Path, pattern: str, target: Path) -> str:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        msg = f"{pattern!r} is not a regular expression: {error}"
        raise ToolException(msg) from error
    lines = [
        f"{_relative(project, file)}:{number}:{line}"
        for file in _files(target)
        for number, line in enumerate(_text_of(file).splitlines(), 1)
        if wanted.search(line)
    ]
    return "\n".join(lines) or "no line matches"


def _replace_once(file: Path, old: str, new: str) -> str:
    text = _text_of(file)
    if text.count(old) != 1:
        msg = f"the old text occurs {text.count(old)} times in {file.name!r}: quote more of it"
        raise ToolException(msg)
    file.write_text(text.replace(old, new), "utf-8")
    return f"{file.name} edited"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example from the command line; returns the exit code."""
    print(
        f"tools wait {TOOL_DELAY_S} s each, like a remote sandbox; "
        f"scripted models write {TOKENS_PER_S:.0f} and {DRAFT_TOKENS_PER_S:.0f} tokens/s"
    )
    return run_from_command_line(build_agent, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
