"""Looks into a graph from outside: which of its tools can run early, and what else decides."""

import asyncio
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool
from langgraph.graph.state import (  # pyright: ignore[reportMissingTypeStubs]
    CompiledStateGraph,
)
from langgraph.prebuilt import ToolNode

from langchain_spectool.errors import SpectoolError
from langchain_spectool.graph.declare import Explanation, explain
from langchain_spectool.graph.gates import (
    gated_names,
    reachable,
)
from langchain_spectool.graph.middleware import SpeculationMiddleware
from langchain_spectool.graph.speculation import Speculation
from langchain_spectool.graph.tool_node import SpeculativeToolNode

_ADD = "nothing speculates in it yet: add `SpeculationMiddleware`, or the nodes of a `Speculation`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What one graph's tools can do early."""

    name: str
    tools: Sequence[Explanation]
    notes: Sequence[str]
    """What else decides whether they do."""

    def __str__(self) -> str:
        """Say it in a few lines."""
        lines = [self.name, *(f"  {tool}" for tool in self.tools)]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def as_json(self) -> dict[str, object]:
        """Return it as plain data."""
        tools = [
            {"tool": t.tool, "early": t.early, "verdict": t.verdict, "reason": t.reason}
            for t in self.tools
        ]
        return {"name": self.name, "tools": tools, "notes": [*self.notes]}


def load(target: str) -> object:
    """Import what `module:name` or `path/to/file.py:name` names; call it if it is a factory.

    Raises:
        SpectoolError: The target cannot be found, imported or built.
    """
    where, _, name = target.rpartition(":")
    if not where or not name:
        msg = f"a graph is named as `module:graph` or `file.py:graph`, got {target!r}"
        raise SpectoolError(msg)
    try:
        module = _module(where)
        found: object = getattr(module, name)
        return found if not inspect.isroutine(found) else _built(found)
    except Exception as error:
        msg = f"{target!r} cannot be loaded: {type(error).__name__}: {error}"
        raise SpectoolError(msg) from error


def _module(where: str) -> ModuleType:
    folder = Path(where).parent if where.endswith(".py") else Path()
    sys.path.insert(0, str(folder.resolve()))
    if not where.endswith(".py"):
        return import_module(where)
    spec = spec_from_file_location(Path(where).stem, where)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(where)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _built(factory: Any) -> object:  # noqa: ANN401 - anything with a name
    wants = [p for p in inspect.signature(factory).parameters.values() if p.default is p.empty]
    made = factory(*({} for _ in wants))  # servers hand a config to factories that ask for one
    return asyncio.run(_awaited(made)) if inspect.isawaitable(made) else made


async def _awaited(made: Any) -> object:  # noqa: ANN401 - any awaitable
    return await made


def diagnose(subject: object) -> list[Diagnosis]:
    """Explain every tool of a graph and of the graphs inside it, one diagnosis a graph.

    Args:
        subject: A compiled graph, a `Speculation`, a `ToolNode` or tools.

    Raises:
        SpectoolError: `subject` is none of these.
    """
    if isinstance(subject, CompiledStateGraph):
        graph = cast("Any", subject)
        graphs = [(graph.get_name(), graph), *graph.get_subgraphs(recurse=True)]
        return [_of_graph(name, each) for name, each in graphs]
    if isinstance(subject, Speculation):
        return [_diagnosis("Speculation", subject.tools, [subject], (), [])]
    if isinstance(subject, ToolNode):
        return [_diagnosis("ToolNode", _tools([subject]), _speculations([subject]), (), [])]
    if isinstance(subject, list):
        tools = cast("list[object]", subject)
        if all(isinstance(tool, BaseTool) for tool in tools):
            return [Diagnosis(name="tools", tools=explain(tools), notes=[])]
    kind = type(cast("object", subject)).__name__
    msg = (
        f"a {kind} has no tools to look at: name a compiled graph, a Speculation, a ToolNode, "
        "a list of tools, or a function that returns one of these"
    )
    raise SpectoolError(msg)


def _of_graph(name: str, graph: Any) -> Diagnosis:  # noqa: ANN401 - generic in four types
    parts = [*_parts(graph)]
    gates = {name for part in parts for name in _gates(part)}
    stops = {
        "interrupt_before": graph.interrupt_before_nodes,
        "interrupt_after": graph.interrupt_after_nodes,
    }
    notes = [
        f"`{word}={[*nodes]}` cannot be seen in a run: name the tools it holds back in `gated`"
        for word, nodes in stops.items()
        if nodes
    ]
    return _diagnosis(name, _tools(parts), _speculations(parts), gates, notes)


def _parts(graph: Any) -> Iterator[object]:  # noqa: ANN401 - as above
    """Yield what the nodes are made of; what hides behind a module's globals stays unseen."""
    for node in graph.nodes.values():
        bound: object = node.bound
        for start in (bound, getattr(bound, "func", None), getattr(bound, "afunc", None)):
            if start is not None:
                yield from reachable(start)


def _tools(parts: Iterable[object]) -> list[BaseTool]:
    nodes = {id(part): part for part in parts if isinstance(part, ToolNode)}
    return [tool for node in nodes.values() for tool in node.tools_by_name.values()]


def _speculations(parts: Iterable[object]) -> list[Speculation]:
    holders = (p for p in parts if isinstance(p, (SpeculativeToolNode, SpeculationMiddleware)))
    found = {id(holder.speculation): holder.speculation for holder in holders}
    return [*found.values()]


def _gates(part: object) -> frozenset[str]:
    if isinstance(part, AgentMiddleware):
        try:
            return gated_names([cast("object", part)])
        except ValueError:  # a middleware that is no gate
            pass
    return frozenset()


def _diagnosis(
    name: str,
    tools: Sequence[BaseTool],
    speculations: Sequence[Speculation],
    gates: Iterable[str],
    notes: Sequence[str],
) -> Diagnosis:
    gated = frozenset(gates).union(*(s.gated for s in speculations))
    trusted = frozenset[str]().union(*(s.trusted for s in speculations))
    policy = next((s.policy for s in speculations), None)
    setting = [_setting(s) for s in speculations] or [_ADD if tools else "no tools are in it"]
    return Diagnosis(
        name=name,
        tools=explain(tools, policy=policy, gated=gated, trust_mcp=trusted),
        notes=[*setting, *notes],
    )


def _setting(speculation: Speculation) -> str:
    sources = [source.name for source in speculation.speculators]
    text = (
        f"speculation is {speculation.mode({})}, guesses come from {', '.join(sources) or 'nobody'}"
    )
    notes = [note for name, note in _OF_SOURCES.items() if name in sources]
    return ": ".join((text, "; ".join(notes))) if notes else text


_OF_SOURCES = {
    "patterns": "patterns learns as the agent runs, and its first guesses are only scored",
    "early_dispatch": "early_dispatch hears the main model only when the caller streams",
}
