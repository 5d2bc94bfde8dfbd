"""The kinds of tools there are: what their bodies do, and which parameters they have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import (
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    ToolException,
)
from langgraph.config import get_store, get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langchain_spectool.testing import ScriptedModel, text

BAD = "bad"
"""The argument on which failing tools fail."""
QUERIES = ("a", "A", "b", "ann@x.org", BAD)
"""What tools are asked for."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a body is called with, and what it saw of the world when it began."""

    tool: str
    q: str
    n: int
    seen: int = 0
    runtime: Any = None
    state: Any = None
    call_id: str | None = None
    config: Any = None

    def value(self) -> str:
        """Return what a plain read answers."""
        return f"{self.tool}({self.q!r}, {self.n!r}) at {self.seen}"


@dataclass(frozen=True)
class Found:
    """A value that is no JSON."""

    q: str
    seen: int


Act = Callable[[Call], Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How tools of one kind are made."""

    act: Act = Call.value
    aact: Callable[[Call], Any] | None = None
    """The asynchronous form, where it differs."""
    shape: str = "plain"
    """A key of `SHAPES`: which parameters the body has."""
    options: Mapping[str, Any] | None = None
    declarable: bool = True
    fatal: frozenset[str] = frozenset()
    """Arguments on which a call may end the run or interrupt it."""


# --- what the bodies do


def _fail(call: Call) -> str:
    if call.q == BAD:
        raise ValueError(f"{call.tool} cannot read {call.q}")
    return call.value()


def _fail_politely(call: Call) -> str:
    if call.q == BAD:
        raise ToolException(f"{call.tool} found nothing")
    return call.value()


def _stream(call: Call) -> str:
    get_stream_writer()({"tool": call.tool, "q": call.q, "n": call.n})
    return call.value()


def _emit(call: Call) -> str:
    call.runtime.emit_output_delta(call.q)
    return call.value()


def _store(call: Call) -> str:
    get_store().put(("seen",), f"{call.q} {call.n}", {"q": call.q})
    return call.value()


def _dispatch(call: Call) -> str:
    dispatch_custom_event("found", {"q": call.q})
    return call.value()


async def _adispatch(call: Call) -> str:
    await adispatch_custom_event("found", {"q": call.q})
    return call.value()


_CHAIN = RunnableLambda(str.upper, name="inner")


def _chain(call: Call) -> str:
    return call.value() + _CHAIN.invoke(call.q)


async def _achain(call: Call) -> str:
    return call.value() + await _CHAIN.ainvoke(call.q)


class _Library(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=query)]

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=query)]


def _retrieve(call: Call) -> str:
    return call.value() + _Library().invoke(call.q)[0].page_content


async def _aretrieve(call: Call) -> str:
    return call.value() + (await _Library().ainvoke(call.q))[0].page_content


def _ask_model(call: Call) -> str:
    return ScriptedModel(turns=[text("inner words")]).invoke(call.q).text


async def _aask_model(call: Call) -> str:
    return (await ScriptedModel(turns=[text("inner words")]).ainvoke(call.q)).text


class _Inner(TypedDict):
    q: str


def _inner_graph() -> Any:
    builder = StateGraph(_Inner)
    builder.add_node("inner", lambda state: {"q": state["q"] + "!"})
    builder.add_edge(START, "inner")
    return builder.compile()


def _graph(call: Call) -> str:
    return _inner_graph().invoke({"q": call.q})["q"]


async def _agraph(call: Call) -> str:
    return (await _inner_graph().ainvoke({"q": call.q}))["q"]


def _answered(question: str) -> object:
    return interrupt({"question": question})


def _ask(call: Call) -> str:
    return f"{call.value()}, answered {_answered(call.q)}"


def _tool_message(call: Call) -> ToolMessage:
    return ToolMessage(call.value(), tool_call_id=call.call_id or "", name=call.tool)


def command(key: str) -> Act:
    """Return what a tool does that answers with a Command for the messages at `key`."""
    return lambda call: Command(update={key: [_tool_message(call)]})


# --- what parameters they have


class _Arguments(BaseModel):
    q: str
    n: int = 1


_JSON_SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["q"],
}

Body = Callable[[dict[str, Any]], Any]


def _plain(run: Body, arun: Body) -> tuple[Any, Any]:
    def func(q: str, n: int = 1) -> Any:
        return run({"q": q, "n": n})

    async def coroutine(q: str, n: int = 1) -> Any:
        return await arun({"q": q, "n": n})

    return func, coroutine


def _loose(run: Body, arun: Body) -> tuple[Any, Any]:
    def func(**kwargs: Any) -> Any:
        return run({"n": 1, **kwargs})

    async def coroutine(**kwargs: Any) -> Any:
        return await arun({"n": 1, **kwargs})

    return func, coroutine


def _runtime(run: Body, arun: Body) -> tuple[Any, Any]:
    def func(q: str, runtime: ToolRuntime[Any, Any], n: int = 1) -> Any:
        return run({"q": q, "n": n, "runtime": runtime})

    async def coroutine(q: str, runtime: ToolRuntime[Any, Any], n: int = 1) -> Any:
        return await arun({"q": q, "n": n, "runtime": runtime})

    return func, coroutine


def _optional(run: Body, arun: Body) -> tuple[Any, Any]:
    def func(q: str, n: int = 1, hint: Annotated[str | None, InjectedToolArg] = None) -> Any:
        return run({"q": q, "n": n, "state": hint})

    async def coroutine(
        q: str, n: int = 1, hint: Annotated[str | None, InjectedToolArg] = None
    ) -> Any:
        return await arun({"q": q, "n": n, "state": hint})

    return func, coroutine


def _call_id(run: Body, arun: Body) -> tuple[Any, Any]:
    def func(q: str, call_id: Annotated[str, InjectedToolCallId], n: int = 1) -> Any:
        return run({"q": q, "n": n, "call_id": call_id})

    async def coroutine(q: str, call_id: Annotated[str, InjectedToolCallId], n: int = 1) -> Any:
        return await arun({"q": q, "n": n, "call_id": call_id})

    return func, coroutine


def _stateful(run: Body, arun: Body) -> tuple[Any, Any]:
    def func(q: str, state: Annotated[Any, InjectedState], n: int = 1) -> Any:
        return run({"q": q, "n": n, "state": state})

    async def coroutine(q: str, state: Annotated[Any, InjectedState], n: int = 1) -> Any:
        return await arun({"q": q, "n": n, "state": state})

    return func, coroutine


def _configured(run: Body, arun: Body) -> tuple[Any, Any]:
    def func(q: str, config: RunnableConfig, n: int = 1) -> Any:
        return run({"q": q, "n": n, "config": config})

    async def coroutine(q: str, config: RunnableConfig, n: int = 1) -> Any:
        return await arun({"q": q, "n": n, "config": config})

    return func, coroutine


SHAPES: Mapping[str, Callable[[Body, Body], tuple[Any, Any]]] = {
    "plain": _plain,
    "loose": _loose,
    "runtime": _runtime,
    "optional": _optional,
    "call_id": _call_id,
    "stateful": _stateful,
    "configured": _configured,
}


class Blocking(BaseTool):
    name: str = "klass"
    description: str = "Read."
    args_schema: Any = _Arguments
    body: Any = None
    abody: Any = None

    def _run(self, q: str, n: int = 1, run_manager: Any = None) -> Any:
        return self.body({"q": q, "n": n})


class Awaiting(Blocking):
    async def _arun(self, q: str, n: int = 1, run_manager: Any = None) -> Any:
        return await self.abody({"q": q, "n": n})


# --- the kinds


def _messages_of(state: Any) -> list[Any]:
    for key in ("messages", "chat"):
        found = state.get(key) if isinstance(state, dict) else getattr(state, key, None)
        if found is not None:
            return found
    return []


KINDS: Mapping[str, Kind] = {
    "plain": Kind(),
    "other": Kind(options={"tags": ["odd"], "metadata": {"team": "blue"}}),
    "klass": Kind(),
    "pair": Kind(
        act=lambda call: (call.value(), {"q": call.q, "n": [call.n]}),
        options={"response_format": "content_and_artifact"},
    ),
    "listing": Kind(act=lambda call: {"found": [call.q, {"n": call.n}], "at": call.seen}),
    "blocks": Kind(act=lambda call: [{"type": "text", "text": call.value()}]),
    "object": Kind(act=lambda call: Found(call.q, call.seen)),
    "forgiving": Kind(options={"handle_validation_error": "say it again"}),
    "loose": Kind(shape="loose", options={"args_schema": _JSON_SCHEMA}),
    "direct": Kind(options={"return_direct": True}),
    "polite": Kind(act=_fail_politely, options={"handle_tool_error": True}),
    "failing": Kind(act=_fail, fatal=frozenset({BAD})),
    "optional": Kind(shape="optional"),
    "context": Kind(
        shape="runtime", act=lambda call: f"{call.value()} for {call.runtime.context.tenant}"
    ),
    # what a replay could not repeat
    "writer": Kind(act=_stream),
    "delta": Kind(shape="runtime", act=_emit),
    "stored": Kind(act=_store),
    "event": Kind(act=_dispatch, aact=_adispatch),
    "chain": Kind(act=_chain, aact=_achain),
    "retriever": Kind(act=_retrieve, aact=_aretrieve),
    "model": Kind(act=_ask_model, aact=_aask_model),
    "graph": Kind(act=_graph, aact=_agraph),
    "stateful": Kind(
        shape="runtime",
        act=lambda call: f"{call.value()} after {len(_messages_of(call.runtime.state))}",
    ),
    "sneaky": Kind(act=_ask, fatal=frozenset(QUERIES)),
    # what may never run early
    "write": Kind(declarable=False),
    "ask": Kind(act=_ask, declarable=False, fatal=frozenset(QUERIES)),
    "command": Kind(shape="call_id", declarable=False),
    "message": Kind(shape="call_id", act=_tool_message, declarable=False),
    "injected": Kind(
        shape="stateful",
        act=lambda call: f"{call.value()} after {len(_messages_of(call.state))}",
        declarable=False,
    ),
    "configured": Kind(
        shape="configured",
        act=lambda call: f"{call.value()} in {call.config['configurable'].get('thread_id')}",
        declarable=False,
    ),
    "unknown_effect": Kind(act=_fail, declarable=False, fatal=frozenset({BAD})),
}
