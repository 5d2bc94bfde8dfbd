"""What a tool's own schema says about its arguments, before anything was seen of its use."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage

from langchain_spectool.speculators.patterns.paths import singular
from langchain_spectool.speculators.patterns.shapes import token_shapes
from langchain_spectool.speculators.patterns.sources import Source

_EXAMPLES = re.compile(
    r"(?:such as|e\.g\.,?|for example,?|like|example:?)\s+[\"'`“]?([#@\w][\w#@.:/+-]*\w)"
)
_SHAPES_BY_NAME = (
    ("email", ("email",)),
    ("date", ("date", "monthday")),
    ("first_name", ("phrase:first",)),
    ("last_name", ("phrase:last",)),
    ("zip", ("9{5}",)),
    ("postal", ("9{5}",)),
    ("url", ("url",)),
    ("path", ("path", "file")),
    ("file", ("file", "path")),
)
_MAX_ENUM = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgSchema:
    """One argument of a tool."""

    kind: str
    """Its JSON type; `""` where the schema leaves it open."""
    constants: tuple[str | int | float | bool, ...]
    """The values that the schema itself names."""
    sources: tuple[Source, ...]
    """Where its name and description suggest to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool as its schema describes it."""

    name: str
    args: Mapping[str, ArgSchema]
    required: tuple[str, ...]
    is_known: bool = True
    """False for a tool of which only calls were seen: its name may be anyone's data."""


class Schemas:
    """The schemas of the tools seen last, read once per tool object."""

    def __init__(self, size: int = 4_096) -> None:
        """Keep `size` tools."""
        self._size = size
        self._read: dict[int, tuple[object, ToolSchema]] = {}

    def of_all(self, tools: Iterable[object]) -> list[ToolSchema]:
        """Return the schemas of the tools that have a name: those of a provider have none."""
        return [schema for schema in map(self.of, tools) if schema.name]

    def of(self, tool: object) -> ToolSchema:
        """Return the schema of `tool`; one that cannot be read has no arguments."""
        held = self._read.get(id(tool))
        if held is not None and held[0] is tool:
            return held[1]
        if len(self._read) >= self._size:
            del self._read[next(iter(self._read))]
        schema = read_schema(tool)
        self._read[id(tool)] = (tool, schema)
        return schema


def names_of(tools: Iterable[object]) -> frozenset[str]:
    """Return the names of tools."""
    return frozenset(name for tool in tools if (name := str(getattr(tool, "name", ""))))


def called_in(messages: Iterable[object]) -> list[ToolSchema]:
    """Return the tools that messages call, of which nothing but the name is known."""
    calls = [
        call
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    names = sorted({call["name"] for call in calls} - {""})
    return [ToolSchema(name=name, args={}, required=(), is_known=False) for name in names]


def read_schema(tool: object) -> ToolSchema:
    """Return the schema of a tool: any object with `name`, and `args_schema` or `args`."""
    schema: Mapping[str, Any] = {}
    with suppress(Exception):  # whatever a foreign schema raises, the tool has no clues
        schema = _json_schema(tool)
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    args = {
        name: _argument(name, _resolved(cast("Mapping[str, Any]", value), schema))
        for name, value in properties.items()
        if isinstance(value, dict)
    }
    return ToolSchema(
        name=str(getattr(tool, "name", "")),
        args=args,
        required=tuple(sorted(name for name in required if name in args)),
    )


def _json_schema(tool: object) -> Mapping[str, Any]:
    shown: object = getattr(tool, "tool_call_schema", None) or getattr(tool, "args_schema", None)
    if isinstance(shown, dict):
        return cast("Mapping[str, Any]", shown)
    make: object = getattr(shown, "model_json_schema", None)
    if callable(make):
        return cast("Mapping[str, Any]", make())
    properties = cast("Mapping[str, Any]", getattr(tool, "args", None) or {})
    required = [name for name, value in properties.items() if "default" not in value]
    return {"properties": properties, "required": required}


def _resolved(value: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference, and take the first choice that is not null."""
    options = [value, *cast("Sequence[Mapping[str, Any]]", value.get("anyOf") or ())]
    shared = cast("Mapping[str, Mapping[str, Any]]", schema.get("$defs") or {})
    for option in options:
        name = str(option.get("$ref", "")).rsplit("/", 1)[-1]
        target = shared.get(name, {}) if name else option
        if target.get("type") not in {None, "null"}:
            return {**target, **{key: value[key] for key in ("default",) if key in value}}
    return value


def _argument(name: str, value: Mapping[str, Any]) -> ArgSchema:
    kind = value.get("type")
    named = [*(value.get("enum") or ()), value.get("const"), value.get("default")]
    if kind == "boolean":
        named += [True, False]
    constants = [item for item in named if isinstance(item, str | int | float | bool)]
    text = str(value.get("description") or "")
    shapes = _shapes(name, text, str(value.get("format") or ""), value.get("examples"))
    return ArgSchema(
        kind=kind if isinstance(kind, str) else "",
        constants=tuple(constants[:_MAX_ENUM]),
        sources=() if kind in {"boolean", "object"} else (*_by_name(name), *_by_shape(shapes)),
    )


def _shapes(name: str, description: str, form: str, examples: object) -> list[str]:
    texts = _EXAMPLES.findall(description)
    if isinstance(examples, list):
        texts += [text for text in cast("list[object]", examples) if isinstance(text, str)]
    shapes = [shape for text in texts for shape in token_shapes(text) if shape != "name"]
    lowered = singular(name)
    for word, named in _SHAPES_BY_NAME:
        if word in lowered or word == form:
            shapes += named
    if "YYYY-MM-DD" in description:
        shapes += ["date", "monthday"]
    return list(dict.fromkeys(shapes))[:6]


def _by_name(name: str) -> tuple[Source, ...]:
    lowered = singular(name)
    sources: list[Source] = [("name", lowered), ("named", lowered), ("same", name)]
    return tuple(sources)


def _by_shape(shapes: Sequence[str]) -> tuple[Source, ...]:
    return tuple(("user", shape) for shape in shapes)
