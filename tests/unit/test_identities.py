"""A tool's identity is part of a key: look-alikes differ, and a changed tool is prepared anew."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import (
    BaseModel,
    create_model,
)

from langchain_spectool._core.contracts import Contract, declare
from langchain_spectool._core.keys import PreparedTool, call_key, prepared
from tests.unit.keyed_tools import Hiding, Place, Raw, Wording, lookup, over, took


def made(answer: str, name: str = "act", schema: Any = Place) -> BaseTool:
    """Return a tool that differs from its likes in what its function remembers."""
    return StructuredTool(name=name, description="d", args_schema=schema, func=lambda **_: answer)


class Server:
    def act(self, **values: Any) -> str:
        """Answer for this very server."""
        return took(**values)


class Indexed(Raw):
    index: str = ""


def served_by(server: Server) -> BaseTool:
    """Return a tool whose body belongs to one object."""
    return StructuredTool(name="act", description="d", args_schema=Place, func=server.act)


def over_nested(kind: Any) -> BaseTool:
    """Return a tool whose schema holds another one named `Inner`."""
    inner = create_model("Inner", x=(kind, ...))
    return over(create_model("Outer", inner=(inner, ...)), "act")


TWINS: dict[str, Callable[[], tuple[BaseTool, BaseTool]]] = {
    "B41 function": lambda: (made("safe"), made("dangerous")),
    "B41 schema": lambda: (over(Place, "act"), over(Hiding, "act")),
    "nested schema": lambda: (over_nested(int), over_nested(str)),
    "no schema at all": lambda: (over(Place, "act"), over({}, "act")),
    "schemas without JSON": lambda: (over(opaque("a"), "act"), over(opaque("b"), "act")),
    "B41 object": lambda: (served_by(Server()), served_by(Server())),
    "B41 fields": lambda: (Indexed(index="a"), Indexed(index="b")),
    "class": lambda: (Raw(name="act"), Wording(name="act")),
    "name": lambda: (over(Place, "a,b"), over(Place, "a")),
    "version": lambda: (over(Place, "act"), versioned("2")),
}


def opaque(name: str) -> type[BaseModel]:
    """Return a schema that no JSON schema describes."""
    fields: dict[str, Any] = {name: (Callable[[int], int], ...)}
    return create_model("Opaque", **fields)


def versioned(version: str) -> BaseTool:
    """Return a tool with a declared version."""
    each = over(Place, "act")
    declare(each, Contract(version=version))
    return each


@pytest.mark.parametrize("case", TWINS)
def test_look_alikes_have_identities_of_their_own(case: str) -> None:
    """One name, two tools: neither is served the other's results."""
    one, other = TWINS[case]()
    assert prepared(one).identity != prepared(other).identity


def test_names_cannot_run_into_what_follows() -> None:
    """Separators inside a name are part of the name."""
    identities = [prepared(over(Place, name)).identity for name in ("a", "a:", "1:a", "a,b", "a b")]
    assert not any(
        one != other and one.startswith(other) for one in identities for other in identities
    )


def test_a_tool_its_module_knows_by_name_has_one_identity() -> None:
    """It holds in every process: made twice, it is the same."""
    assert PreparedTool(lookup).identity == PreparedTool(lookup).identity
    assert PreparedTool(Raw()).identity == PreparedTool(Raw()).identity


def test_a_tool_is_prepared_once() -> None:
    """The second look finds what the first one made, and the tool shows no trace of it."""
    each = over(Place, "act")
    dumped, shown = each.model_dump(), repr(each)
    found = prepared(each)
    assert prepared(each) is found
    assert each.model_dump() == dumped
    assert repr(each) == shown
    assert each == over(Place, "act")


CHANGES: dict[str, Callable[[BaseTool], Any]] = {
    "name": lambda each: setattr(each, "name", "other"),
    "schema": lambda each: setattr(each, "args_schema", Hiding),
    "function": lambda each: setattr(each, "func", lambda **_: "other"),
    "coroutine": lambda each: setattr(each, "coroutine", lambda **_: "other"),
    "version": lambda each: declare(each, Contract(version="2")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_tool_is_prepared_anew(change: str) -> None:
    """What an identity was made of cannot change behind its back."""
    each = over(Place, "act")
    before = prepared(each).identity
    CHANGES[change](each)
    assert prepared(each).identity != before


def test_copies_are_prepared_on_their_own() -> None:
    """A copy carries the note along, but never reads with the original's parser."""
    original = Indexed(index="a")
    found = prepared(original)
    copied = original.model_copy(update={"index": "b"})
    assert prepared(copied).identity != found.identity
    assert prepared(original) is found
    named = lookup.model_copy(update={"description": "other"})
    assert prepared(named).identity == prepared(lookup).identity


def test_deep_copies_and_pickles_carry_nothing() -> None:
    """A prepared tool can be copied and stored as before."""
    each = Raw()
    prepared(each)
    for restored in (copy.deepcopy(each), pickle.loads(pickle.dumps(each))):  # noqa: S301
        assert call_key(restored, {"x": 1}) == call_key(each, {"x": 1})


class Plain:
    """Is no LangChain tool, but parses like one."""

    __slots__ = ()
    name = "plain"
    args_schema = None

    def _to_args_and_kwargs(self, args: Any, _call_id: str) -> Any:
        return (args["x"],), {"n": 1}


def test_an_object_that_cannot_hold_anything_is_prepared_each_time() -> None:
    """Only speed is lost, and with it an identity that lasts."""
    each = Plain()
    assert prepared(each).values({"x": 1}) == {"*0": 1, "n": 1}
    assert prepared(each) is not prepared(each)
