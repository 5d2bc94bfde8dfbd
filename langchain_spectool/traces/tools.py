"""The tools of recorded runs: they can be bound and compared, and never run."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Never

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool

from langchain_spectool._core.contracts import Contract, declare
from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces.trajectory import (
    Conversation,
    UnreadableError,
    is_list,
    is_mapping,
    printable,
)

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""A `tools_ref` comes with the data: it names a file in one folder, and nothing outside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """Tools, and which of them only read."""

    tools: tuple[BaseTool, ...] = ()
    read_only: frozenset[str] = frozenset()
    is_listed: bool = True
    """False where nobody listed them: then only the names that were called are known."""


class Kits:
    """Finds the tools of conversations; those of one source stay the same objects.

    They are, in this order: those of the one file that was given, those that the recording lists,
    those of `tools/<tools_ref>.json` beside it, and, without schemas, those it has called so far.
    """

    def __init__(self, given: Path | None, on_warning: Callable[[str], None]) -> None:
        """Take all tools from the file `given`, if it is not None.

        Raises:
            SpectoolError: That file cannot be used.
        """
        self._given = None if given is None else _of_given(given)
        self._on_warning = on_warning
        self._listed: dict[str, Kit | None] = {}
        self._named: dict[str, dict[str, BaseTool]] = {}

    def kit(self, conversation: Conversation, folder: Path) -> Kit:
        """Return the tools of a conversation that was recorded in `folder`."""
        if self._given is not None:
            return self._given
        return (
            self._recorded(conversation)
            or self._referenced(conversation.tools_ref, folder)
            or self._called(conversation, folder)
        )

    def _recorded(self, conversation: Conversation) -> Kit | None:
        if not conversation.tools:
            return None
        text = json.dumps(conversation.tools, sort_keys=True)
        if text not in self._listed:
            self._listed[text] = self._sound(lambda: kit_of(conversation.tools), "its own tools")
        return self._listed[text]

    def _referenced(self, name: object, folder: Path) -> Kit | None:
        if name is None:
            return None
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
            self._warn_once(f"tools_ref {name!r:.100} is not the bare name of a file: ignored")
            return None
        path = folder / "tools" / f"{name}.json"
        key = str(path)
        if key not in self._listed:
            self._listed[key] = self._sound(lambda: _of_file(path), f"tools/{name}.json")
        return self._listed[key]

    def _sound(self, make: Callable[[], Kit], where: str) -> Kit | None:
        try:
            return make()
        except UnreadableError as error:
            self._on_warning(printable(f"{where} cannot be used: {error}"))
            return None

    def _called(self, conversation: Conversation, folder: Path) -> Kit:
        source = f"{folder}/{conversation.dataset}"
        if source not in self._named:
            self._on_warning(
                printable(f"no tools are listed for {conversation.dataset!r}: left out are ")
                + "their schemas and which of them only read; all else is used, with the names "
                "of the tools that were called (to add what is left out, name a list with --tools)"
            )
        known = self._named.setdefault(source, {})
        for message in conversation.messages:
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                if call["name"] not in known:
                    known[call["name"]] = _tool({"name": call["name"]})
        return Kit(tools=tuple(known.values()), is_listed=False)

    def _warn_once(self, text: str) -> None:
        if text not in self._listed:
            self._listed[text] = None
            self._on_warning(printable(text))


def kit_of(listed: Iterable[object]) -> Kit:
    """Make tools of a list in OpenAI's form; `x_read_only` marks those that only read.

    Raises:
        UnreadableError: An entry is no tool, or two have one name.
    """
    tools: dict[str, BaseTool] = {}
    read_only: set[str] = set()
    for number, entry in enumerate(listed, 1):
        if not is_mapping(entry):
            msg = f"tool {number} is a JSON object, got {type(entry).__name__}"
            raise UnreadableError(msg)
        function = entry.get("function")
        tool = _tool(function if is_mapping(function) else entry)
        if tool.name in tools:
            msg = f"two tools are called {tool.name!r:.60}"
            raise UnreadableError(msg)
        tools[tool.name] = tool
        if True in (entry.get("x_read_only"), is_mapping(function) and function.get("x_read_only")):
            read_only.add(tool.name)
            declare(tool, Contract())
    return Kit(tools=tuple(tools.values()), read_only=frozenset(read_only))


def _of_given(path: Path) -> Kit:
    try:
        return _of_file(path)
    except UnreadableError as error:
        msg = f"the tools file {str(path)!r} cannot be used: {error}"
        raise SpectoolError(msg) from error


def _of_file(path: Path) -> Kit:
    try:
        listed: object = json.loads(path.read_bytes())
    except OSError as error:
        msg = f"it cannot be opened ({error.strerror})"
        raise UnreadableError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = "it is not JSON"
        raise UnreadableError(msg) from error
    if not is_list(listed):
        msg = f"it holds a list of tools in OpenAI's form, got {type(listed).__name__}"
        raise UnreadableError(msg)
    return kit_of(listed)


def _tool(function: Mapping[str, Any]) -> BaseTool:
    name = function.get("name")
    if not isinstance(name, str) or not name:
        msg = f"a tool has a name, got {name!r:.60}"
        raise UnreadableError(msg)
    parameters: Any = function.get("parameters") or function.get("input_schema") or {}
    if not is_mapping(parameters) or not is_mapping(parameters.get("properties", {})):
        msg = f"`parameters` of the tool {name!r:.60} are a JSON schema of an object"
        raise UnreadableError(msg)
    return StructuredTool(
        name=name,
        description=str(function.get("description") or ""),
        args_schema={"type": "object", "properties": {}, **parameters},
        func=_never,
    )


def _never(**_: object) -> Never:
    msg = "a tool of a recorded run cannot run: only its calls are compared"
    raise SpectoolError(msg)
