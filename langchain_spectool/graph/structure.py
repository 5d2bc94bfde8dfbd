"""What a tool's signature tells: whether it can ever run early, and what it gets injected."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast, get_args, get_origin, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    Tool,
)
from langchain_core.tools.base import get_all_basemodel_annotations
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.types import Command, interrupt

_KEY = "_spectool_structure"
_METHODS = ("_run", "_arun")
# LangChain's own bodies: they only lead on to `func` and `coroutine`.
STOCK_BODIES: tuple[object, ...] = tuple(
    getattr(kind, name) for kind in (BaseTool, StructuredTool, Tool) for name in _METHODS
)

_INSTEAD = "take what the body needs as an argument or from `runtime.context`"
_NEVER_GUESSED: Mapping[type, str] = {
    InjectedToolCallId: (
        "receives the id of the model's call, which a guess has not: return a plain value instead"
    ),
    InjectedState: (
        f"receives the graph's state, which may change between guess and call: {_INSTEAD}"
    ),
    InjectedStore: (
        "receives the store, which may change between guess and call: "
        "read the data through a client of the tool's own"
    ),
    cast("type", RunnableConfig): (
        f"receives the config of the model's call, which a guess has not: {_INSTEAD}"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What the signatures and the schema of a tool say, whatever is declared."""

    verdict: ClassVar[str] = "structure"
    """The word for a tool that has a `reason`."""
    reason: str | None = None
    """Why the tool can never run early, and the fix; None where it depends on the run."""
    runtime_parameters: frozenset[str] = frozenset()
    """Parameters that ToolNode fills with a ToolRuntime: annotated so, or just named `runtime`."""
    injected: frozenset[str] = frozenset()
    """All parameters that the model does not fill, `runtime_parameters` among them."""
    asynchronous: bool = False
    """Whether the tool has an asynchronous body of its own."""
    synchronous: bool = False
    """Whether the tool has a synchronous body of its own; MCP tools have none."""

    @property
    def uses_runtime(self) -> bool:
        """Whether ToolNode hands the body a ToolRuntime."""
        return bool(self.runtime_parameters)


def structural_reason(tool: BaseTool | type[BaseTool]) -> Structure:
    """Inspect a tool or a tool class; never raises.

    A tool object keeps its result until its class, bodies or schema are others. What cannot be
    inspected says so in its `reason`.
    """
    try:
        return _inspect(tool) if isinstance(tool, type) else _inspect_once(tool)
    except Exception as error:  # noqa: BLE001 - a strange tool is refused, never a crash
        return Structure(reason=f"it cannot be inspected ({error!r}): give it a plain signature")


def _inspect_once(tool: BaseTool) -> Structure:
    parts = (type(tool), *(getattr(tool, name, None) for name in ("func", "coroutine")))
    parts = (*parts, tool.args_schema)
    known: tuple[tuple[object, ...], Structure] | None = tool.__dict__.get(_KEY)
    if known is not None and all(was is now for was, now in zip(known[0], parts, strict=True)):
        return known[1]
    structure = _inspect(tool)
    object.__setattr__(tool, _KEY, (parts, structure))
    return structure


def _inspect(tool: BaseTool | type[BaseTool]) -> Structure:
    bodies = own_bodies(tool)
    signatures = {name: _function_parameters(body) for name, body in bodies.items()}
    schema = _schema_parameters(tool, signatures.get("_run", {}))
    first = signatures.get("func", signatures.get("coroutine", {}))
    runtime = frozenset(name for name, it in {**first, **schema}.items() if it.is_runtime(name))
    everything = [schema, *signatures.values()]
    marked = {name for each in everything for name, it in each.items() if it.is_injected()}
    return Structure(
        reason=_refusal(list(bodies.values()), everything, runtime),
        runtime_parameters=runtime,
        injected=runtime | marked,
        asynchronous=not bodies.keys().isdisjoint({"coroutine", "_arun"}),
        synchronous=not bodies.keys().isdisjoint({"func", "_run"}),
    )


def takes_handles(tool: BaseTool) -> bool:
    """Say whether the body is handed what belongs to its own call: its runtime or callbacks.

    Such a body may have used any of it. What cannot be inspected may, too.
    """
    handles = {"run_manager", "callbacks"}
    try:
        parameters = (inspect.signature(body).parameters for body in own_bodies(tool).values())
        return structural_reason(tool).uses_runtime or any(
            not handles.isdisjoint(names) for names in parameters
        )
    except Exception:  # noqa: BLE001 - a strange tool is refused, never a crash
        return True


def own_bodies(tool: BaseTool | type[BaseTool]) -> dict[str, Callable[..., Any]]:
    """Return what the tool's author wrote: `func`, `coroutine`, and overridden run methods."""
    kind = tool if isinstance(tool, type) else type(tool)
    functions = {name: getattr(tool, name, None) for name in ("func", "coroutine")}
    methods = {name: getattr(kind, name) for name in _METHODS}
    return {
        name: body
        for name, body in (functions | methods).items()
        if callable(body) and body not in STOCK_BODIES
    }


class _Parameter(NamedTuple):
    annotation: object
    has_default: bool

    def mentions(self, mark: type) -> bool:
        return _mentions(self.annotation, mark)

    def is_runtime(self, name: str) -> bool:
        named = name == "runtime" and self.annotation is not inspect.Parameter.empty
        return named or self.mentions(ToolRuntime)

    def is_injected(self) -> bool:
        return self.mentions(InjectedToolArg) or self.mentions(ToolRuntime)


_Parameters = Mapping[str, _Parameter]


def _function_parameters(body: Callable[..., Any]) -> _Parameters:
    hints = _hints(body)
    return {
        name: _Parameter(
            hints.get(name, parameter.annotation),
            parameter.default is not inspect.Parameter.empty,
        )
        for name, parameter in inspect.signature(body).parameters.items()
    }


def _schema_parameters(tool: BaseTool | type[BaseTool], run: _Parameters) -> _Parameters:
    schema: object = (
        tool.model_fields["args_schema"].default if isinstance(tool, type) else tool.args_schema
    )
    if schema is None:
        return run  # LangChain then makes the schema from `_run`
    if not isinstance(schema, type):
        return {}  # a JSON schema injects nothing
    parameters = inspect.signature(schema).parameters
    return {
        name: _Parameter(
            annotation,
            name in parameters and parameters[name].default is not inspect.Parameter.empty,
        )
        for name, annotation in get_all_basemodel_annotations(schema).items()
    }


def _refusal(
    bodies: Sequence[Callable[..., Any]], everything: Sequence[_Parameters], runtime: frozenset[str]
) -> str | None:
    if not bodies:
        return "it has no body of its own: give it a function"
    for parameters in everything:
        for name, parameter in parameters.items():
            for mark, why in _NEVER_GUESSED.items():
                if parameter.mentions(mark):
                    return f"`{name}` {why}"
            if parameter.is_injected() and not parameter.has_default and name not in runtime:
                return f"`{name}` is filled by the application, not by the model: let it default"
    for body in bodies:
        result = _hints(body).get("return")
        if _mentions(result, Command) or _mentions(result, ToolMessage):
            return "it returns a Command or ToolMessage, bound to one call: return a plain value"
        if _names_interrupt(body):
            return "it calls `interrupt()`, which only a call of the model may: ask in another tool"
    return None


def _mentions(annotation: object, mark: type) -> bool:
    return any(mark in part.__mro__ for part in _classes(annotation))


def _classes(annotation: object) -> Iterator[type]:
    """Yield every class in an annotation, and the class of every marker object.

    Not what a tuple holds: `(content, artifact)` of every MCP tool may hold a Command on paper.
    """
    origin = get_origin(annotation)
    if origin is None:
        yield annotation if isinstance(annotation, type) else type(annotation)
        return
    if isinstance(origin, type):
        yield origin
    if origin is not tuple:
        for argument in get_args(annotation):
            yield from _classes(argument)


def _hints(body: Callable[..., Any]) -> dict[str, object]:
    """Return the annotations of `body`, resolved where they can be.

    LangChain cannot resolve the others either, so nothing is injected for them.
    """
    function = _function(body)
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - one annotation nobody can resolve must not hide the rest
        annotations = inspect.get_annotations(function)
        return {name: _resolved(hint, function) for name, hint in annotations.items()}


def _resolved(annotation: object, function: Callable[..., Any]) -> object:
    def holder() -> None: ...

    holder.__annotations__ = {"hint": annotation}
    names = getattr(function, "__globals__", {})
    try:
        return get_type_hints(holder, globalns=names, include_extras=True)["hint"]
    except Exception:  # noqa: BLE001 - see `_hints`
        return annotation


def _function(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the code and the annotations of `body`."""
    while isinstance(body, partial):
        body = cast("partial[Any]", body).func
    if inspect.isroutine(body):
        return inspect.unwrap(cast("Callable[..., Any]", body))
    return type(body).__call__


def _names_interrupt(body: Callable[..., Any]) -> bool:
    function = _function(body)
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    known = getattr(function, "__globals__", {})
    return any(known.get(name) is interrupt for name in names)
