"""Other ways to spare an agent its tools' time, for the same tasks."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from langchain_spectool.bench.agents import ToolResult
from langchain_spectool.bench.paper.actors import World, agent_of, output_after
from langchain_spectool.bench.paper.workload import PaperTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One of them."""

    note: str
    agent: Callable[[PaperTask, World], Any]
    module: str | None = None
    """What has to be installed; None: nothing."""
    package: str | None = None

    @property
    def installed(self) -> bool:
        """Whether it can run."""
        return self.module is None or find_spec(self.module) is not None

    def as_json(self, name: str) -> Mapping[str, Any]:
        """Say what it is and whether it ran."""
        version = metadata.version(self.package) if self.package and self.installed else None
        return {"name": name, "installed": self.installed, "version": version, "note": self.note}


class ResultCache(AgentMiddleware[Any, Any, Any]):
    """Answers a call with what an equal one of the same task was told before."""

    def __init__(self) -> None:
        """Know nothing."""
        super().__init__()
        self._known: dict[str, Any] = {}

    async def abefore_agent(self, state: Any, runtime: Any) -> None:  # noqa: ANN401, ARG002 - the interface
        """Forget: other tasks have other worlds, in which equal calls have other answers."""
        self._known.clear()

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Look it up, or run it."""
        call = request.tool_call
        key = f"{call['name']}:{sorted(call['args'].items())}"
        if key in self._known:
            return ToolMessage(self._known[key], name=call["name"], tool_call_id=call["id"])
        result = await handler(request)
        if isinstance(result, ToolMessage) and result.status == "success":
            self._known[key] = result.content
        return result


class _EagerTool:
    """A tool in the second form that eager-tools wants."""

    idempotent = True
    gate = None

    def __init__(self, task: PaperTask, world: World, name: str) -> None:
        self.name = name
        self._task = task
        self._world = world

    async def __call__(self, args: Mapping[str, Any]) -> str:
        return await output_after(self._task, self._world, self.name, args)


def _cached(task: PaperTask, world: World) -> Any:  # noqa: ANN401 - a compiled graph
    return agent_of(task, world, [ResultCache()], declared=False)


def _eager(task: PaperTask, world: World) -> Any:  # noqa: ANN401 - a compiled graph
    tools = {name: _EagerTool(task, world, name) for name in task.tools}
    middleware = import_module("eager_tools_langgraph").eager_middleware(tools)
    return agent_of(task, world, [middleware], declared=False)


PEERS: Final[Mapping[str, Peer]] = {
    "result_cache": Peer(
        note="a minimal cache of tool results within a task, in place of the published ones, which "
        "need a server or answer errors from memory",
        agent=_cached,
    ),
    "eager_tools": Peer(
        note="pip install eager-tools-langgraph; its tools are written a second time for it",
        agent=_eager,
        module="eager_tools_langgraph",
        package="eager-tools-langgraph",
    ),
}
"""Stock LangGraph's side-by-side ToolNode is the arm `plain`."""
