"""What signatures tell about a tool."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Annotated, Any, Optional

import pytest
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    Tool,
    tool,
)
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import _get_all_injected_args
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langchain_spectool.graph import structure
from langchain_spectool.graph.structure import Structure, structural_reason


class Query(BaseModel):
    query: str


class QueryWithCallId(BaseModel):
    query: str
    call: Annotated[str, InjectedToolCallId]


class QueryWithRuntime(BaseModel):
    query: str
    runtime: Any = None


class Context(BaseModel):
    tenant: str


class UserState(InjectedState):
    """A marker of the application's own."""


def _make(function: Callable[..., Any], **fields: Any) -> BaseTool:
    return StructuredTool.from_function(function, name="probe", description="A probe.", **fields)


def _plain(query: str, limit: int = 5) -> str:
    return query * limit


async def _aplain(query: str, limit: int = 5) -> str:
    return query * limit


def _call_id(query: str, call: Annotated[str, InjectedToolCallId]) -> str:
    return call


def _whole_state(query: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    return query


def _one_field(query: str, user: Annotated[str, InjectedState("user_id")]) -> str:
    return user


def _own_marker(query: str, user: Annotated[str, UserState("user_id")]) -> str:
    return user


def _optional_state(
    query: str, user: Annotated[str | None, InjectedState("user_id")] = None
) -> str:
    return query


def _nested_state(
    query: str,
    user: Optional[Annotated[str, InjectedState("user_id")]] = None,  # noqa: UP045 - typing's own
) -> str:
    return query


def _union_state(query: str, user: Annotated[str, InjectedState("user_id")] | None = None) -> str:
    return query


def _store(query: str, store: Annotated[Any, InjectedStore()]) -> str:
    return query


def _config(query: str, config: RunnableConfig) -> str:
    return query


def _renamed_config(query: str, *, run: RunnableConfig | None = None) -> str:
    return query


def _application(query: str, user: Annotated[str, InjectedToolArg]) -> str:
    return user


def _command(query: str) -> Command[Any]:
    return Command(update={})


def _maybe_command(query: str) -> str | Command[Any]:
    return query


def _messages(query: str) -> list[ToolMessage | Command[Any]]:
    return []


def _message(query: str) -> Annotated[ToolMessage, "bound"]:
    return ToolMessage(query, tool_call_id="1")


def _asks(query: str) -> str:
    return str(interrupt(query))


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (_call_id, "`call` receives the id"),
    (_whole_state, "`state` receives the graph's state"),
    (_one_field, "`user` receives the graph's state"),
    (_own_marker, "`user` receives the graph's state"),
    (_optional_state, "`user` receives the graph's state"),
    (_nested_state, "`user` receives the graph's state"),
    (_union_state, "`user` receives the graph's state"),
    (_store, "`store` receives the store"),
    (_config, "`config` receives the config"),
    (_renamed_config, "`run` receives the config"),
    (_application, "`user` is filled by the application"),
    (_command, "returns a Command or ToolMessage"),
    (_maybe_command, "returns a Command or ToolMessage"),
    (_messages, "returns a Command or ToolMessage"),
    (_message, "returns a Command or ToolMessage"),
    (_asks, "calls `interrupt()`"),
]


@pytest.mark.parametrize(
    ("function", "reason"), REFUSED, ids=lambda it: getattr(it, "__name__", "")
)
def test_refused_functions(function: Callable[..., Any], reason: str) -> None:
    """Each reason names the parameter or the result, and says what to do instead."""
    found = structural_reason(_make(function))
    assert found.reason is not None
    assert reason in found.reason
    assert ": " in found.reason
    assert found.verdict == "structure"


@pytest.mark.parametrize(
    ("function", "reason"), REFUSED, ids=lambda it: getattr(it, "__name__", "")
)
def test_refused_methods(function: Callable[..., Any], reason: str) -> None:
    """A class with such a body is refused like a function, as a class and as an object."""

    @wraps(function)
    def _run(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    body = type("Probe", (), {"_run": _run})
    probe: Any = type("Probe", (body, Fake), {"__annotations__": {}})
    for thing in (probe, probe(name="probe", description="A probe.", args_schema=Query)):
        assert reason in str(structural_reason(thing).reason)


class Fake(BaseTool):
    name: str = "fake"
    description: str = "A fake."

    def _run(self, query: str) -> str:
        return query


class FakeAsync(Fake):
    async def _arun(self, query: str) -> str:
        return query


class FakeWithConfig(Fake):
    def _run(self, query: str, config: RunnableConfig) -> str:  # type: ignore[override]
        return query


class FakeWithManager(Fake):
    def _run(self, query: str, run_manager: CallbackManagerForToolRun | None = None) -> str:
        return query


class FakeWithRuntime(Fake):
    def _run(self, query: str, runtime: ToolRuntime) -> str:  # type: ignore[override]
        return query


class FakeStructured(StructuredTool):
    def _run(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> str:  # type: ignore[override]
        return ""


def _runtime(query: str, runtime: ToolRuntime) -> str:
    return query


def _typed_runtime(query: str, given: ToolRuntime[Context, dict[str, Any]]) -> str:
    return query


def _named_runtime(task: str, runtime: str) -> str:
    return task + runtime


async def _mcp_like(
    runtime: Annotated[object | None, InjectedToolArg()] = None, **arguments: Any
) -> tuple[list[Any] | ToolMessage | Command[Any], Any]:
    return [], None


def _defaulted(query: str, user: Annotated[str | None, InjectedToolArg] = None) -> str:
    return query


def _inner_callbacks(query: str, callbacks: Any = None) -> str:
    return query


MCP_FIELDS: dict[str, Any] = {
    "args_schema": {"type": "object", "properties": {"query": {"type": "string"}}},
    "response_format": "content_and_artifact",
}


def _mcp_tool() -> StructuredTool:
    return StructuredTool(name="probe", description="", coroutine=_mcp_like, **MCP_FIELDS)


ALLOWED: list[tuple[BaseTool, set[str], set[str]]] = [
    (_make(_plain), set(), set()),
    (_make(_plain, return_direct=True), set(), set()),
    (_make(_plain, args_schema=Query), set(), set()),
    (_make(_runtime), {"runtime"}, {"runtime"}),
    (_make(_typed_runtime), {"given"}, {"given"}),
    (_make(_named_runtime), {"runtime"}, {"runtime"}),
    (_make(_defaulted), set(), {"user"}),
    (_make(_inner_callbacks), set(), set()),
    (_mcp_tool(), {"runtime"}, {"runtime"}),
    (_make(_plain, args_schema=QueryWithRuntime), {"runtime"}, {"runtime"}),
    (Tool(name="probe", description="", func=str.upper), set(), set()),
    (Fake(), set(), set()),
    (FakeAsync(), set(), set()),
    (FakeWithManager(), set(), set()),
    (FakeWithRuntime(), {"runtime"}, {"runtime"}),
]


@pytest.mark.parametrize(("given", "runtimes", "injected"), ALLOWED)
def test_allowed_tools(given: BaseTool, runtimes: set[str], injected: set[str]) -> None:
    """What depends on the run is left to the run; injected names are known."""
    found = structural_reason(given)
    assert found.reason is None
    assert found.runtime_parameters == runtimes
    assert found.uses_runtime == bool(runtimes)
    assert found.injected == injected


@pytest.mark.parametrize("given", [given for given, *_ in ALLOWED])
def test_runtime_parameters_are_those_that_tool_node_fills(given: BaseTool) -> None:
    """The rule is ToolNode's own, so its own inspection must agree."""
    stock = _get_all_injected_args(given)
    found = structural_reason(given)
    assert found.runtime_parameters == ({stock.runtime} if stock.runtime else set())
    assert found.injected >= stock.all_injected_keys


def test_runtime_hidden_by_a_schema_is_not_filled() -> None:
    """ToolNode goes by the schema of a class, so a parameter outside it gets nothing."""
    given = FakeWithRuntime(args_schema=Query)
    assert _get_all_injected_args(given).runtime is None
    assert structural_reason(given).runtime_parameters == frozenset()


def test_schema_alone_can_refuse() -> None:
    """A marker that stands only in the schema counts, on objects and as a class's default."""

    class Probe(Fake):
        args_schema: type[BaseModel] = QueryWithCallId

    for thing in (_make(_plain, args_schema=QueryWithCallId), Probe, Probe()):
        assert "`call` receives the id" in str(structural_reason(thing).reason)


def test_config_counts_only_in_bodies_of_the_authors_own() -> None:
    """LangChain's own `_run` always takes a config; an author's `_run` that does is refused."""
    assert structural_reason(_make(_plain)).reason is None
    reasons = [structural_reason(thing).reason for thing in (FakeWithConfig(), FakeWithConfig)]
    reasons.append(
        structural_reason(FakeStructured(name="x", description="", args_schema=Query)).reason
    )
    assert all("`config` receives the config" in str(reason) for reason in reasons)


def test_both_bodies_are_inspected() -> None:
    """A harmless `func` does not hide a `coroutine` that is not."""

    async def harmful(query: str) -> Command[Any]:
        return Command()

    given = StructuredTool.from_function(_plain, harmful, name="probe", description="")
    assert "Command" in str(structural_reason(given).reason)


def test_write_todos_is_refused() -> None:
    """LangChain's own to-do tool writes state through a Command."""
    assert structural_reason(TodoListMiddleware().tools[0]).reason is not None


@pytest.mark.parametrize(
    ("given", "synchronous", "asynchronous"),
    [
        (_make(_plain), True, False),
        (StructuredTool.from_function(_plain, _aplain, name="x", description=""), True, True),
        (StructuredTool.from_function(coroutine=_aplain, name="x", description=""), False, True),
        (_mcp_tool(), False, True),
        (Tool(name="x", description="", func=str.upper), True, False),
        (Fake(), True, False),
        (FakeAsync(), True, True),
        (Fake, True, False),
        (FakeAsync, True, True),
    ],
)
def test_which_bodies_a_tool_has(given: BaseTool, synchronous: bool, asynchronous: bool) -> None:
    """Async-only tools, as from MCP, have no synchronous body; sync ones no coroutine."""
    found = structural_reason(given)
    assert (found.synchronous, found.asynchronous) == (synchronous, asynchronous)


def test_annotations_nobody_can_resolve_hide_no_others() -> None:
    """LangChain injects nothing for them; the ones beside them still count."""

    class Probe(Fake):
        def _run(self, query: "Missing", call: "Annotated[str, InjectedToolCallId]") -> "Gone":  # type: ignore[name-defined,override]  # noqa: F821
            return query

    class Harmless(Fake):
        def _run(self, query: "Missing") -> "Gone":  # type: ignore[name-defined,override]  # noqa: F821
            return query

    assert "`call` receives" in str(structural_reason(Probe(args_schema=Query)).reason)
    assert structural_reason(Harmless(args_schema=Query)).reason is None


def test_decorated_bodies_are_looked_through() -> None:
    """A wrapper made with functools.wraps shows the signature of what it wraps."""

    @wraps(_asks)
    def logged(*args: Any, **kwargs: Any) -> Any:
        return _asks(*args, **kwargs)

    assert "interrupt" in str(structural_reason(_make(logged)).reason)


def test_partials_are_looked_through() -> None:
    """What a partial binds is gone from the signature; the rest is as annotated."""
    for function, reason in (
        (_call_id, "`call` receives"),
        (_command, "Command"),
        (_plain, "None"),
    ):
        given = StructuredTool(
            name="x", description="", func=partial(function, query="q"), args_schema=Query
        )
        assert reason in str(structural_reason(given).reason)


def test_callable_objects_are_inspected() -> None:
    """A body may be an object with `__call__`."""

    class Handoff:
        def __call__(self, query: str) -> Command[Any]:
            return Command()

    given = StructuredTool(name="x", description="", func=Handoff(), args_schema=Query)
    assert "Command" in str(structural_reason(given).reason)


def test_a_tool_without_a_body_is_refused() -> None:
    """There is nothing to run."""
    given = StructuredTool(name="x", description="", args_schema=Query)
    assert "no body" in str(structural_reason(given).reason)
    assert "no body" in str(structural_reason(StructuredTool).reason)


class Unreadable:
    """A callable that says nothing about itself."""

    __signature__ = "not a signature"

    def __call__(self, *args: Any) -> str:
        return ""


def test_what_cannot_be_inspected_is_refused_not_raised() -> None:
    """A strange tool costs its own early runs and nothing else."""
    given = StructuredTool(name="x", description="", func=Unreadable(), args_schema=Query)
    found = structural_reason(given)
    assert "cannot be inspected" in str(found.reason)
    assert not found.injected


def test_result_is_kept_until_the_tool_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look per body and schema; a copy carries it, a changed tool is looked at again."""
    looks: list[object] = []

    def counted(given: BaseTool) -> Structure:
        looks.append(given)
        return stock(given)

    stock = structure._inspect
    monkeypatch.setattr(structure, "_inspect", counted)
    given = _make(_plain)
    first = structural_reason(given)
    assert structural_reason(given) is first
    assert structural_reason(given.model_copy()) is first
    assert len(looks) == 1
    for update in ({"func": _asks}, {"coroutine": _aplain}, {"args_schema": QueryWithCallId}):
        assert structural_reason(given.model_copy(update=update)) != first
    assert len(looks) == 4


def test_inspection_leaves_the_tool_as_it_was() -> None:
    """What is kept on the tool shows in no dump, no comparison and no ToolNode."""
    given, twin = _make(_plain), _make(_plain)
    dumped, schema = given.model_dump(), given.tool_call_schema.model_json_schema()
    structural_reason(given)
    assert given.model_dump() == dumped
    assert repr(given) == repr(given.model_copy())
    assert given.tool_call_schema.model_json_schema() == schema
    assert (given == given.model_copy()) is True
    assert (given == twin) is (_make(_plain) == twin)
    assert ToolNode([given]).tools_by_name["probe"] is given


@tool
def decorated(query: str, user: Annotated[str, InjectedState("user_id")]) -> str:
    """Look something up."""
    return query


def test_b18_injected_values_make_a_tool_unguessable() -> None:
    """Two users send the same call and must never share a result."""
    assert "graph's state" in str(structural_reason(decorated).reason)
