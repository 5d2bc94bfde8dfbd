"""Builds tools of every kind, anew for each arm."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tools import BaseTool, StructuredTool

from langchain_spectool import speculatable
from tests.graph.differential.kinds import (
    KINDS,
    SHAPES,
    Act,
    Awaiting,
    Blocking,
    Call,
    Kind,
    command,
)
from tests.graph.differential.specs import LATE, SOON, AgentSpec, ToolSpec, World

FIELDS: Mapping[str, Callable[[World, float], Mapping[str, Any]]] = {
    "deterministic": lambda world, unit_s: {"deterministic": True},
    "reuse": lambda world, unit_s: {"reuse": "run"},
    "brief": lambda world, unit_s: {"fresh_for_s": 4 * unit_s},
    "token": lambda world, unit_s: {"freshness": lambda args: world.version},
    "blind": lambda world, unit_s: {"freshness": lambda args: object()},
    "gate": lambda world, unit_s: {"gate": lambda args: args["q"] != "b"},
    "key": lambda world, unit_s: {"key": lambda args: {**args, "q": args["q"].lower()}},
    "alone": lambda world, unit_s: {"max_concurrency": 1},
    "hurried": lambda world, unit_s: {"timeout_s": 2 * unit_s},
    "late": lambda world, unit_s: {"early": False},
}


def build_tool(spec: ToolSpec, world: World, agent: AgentSpec) -> BaseTool:
    """Make the tool of `spec` for an agent, acting on `world`."""
    kind = KINDS[spec.kind]
    act = command(agent.messages_key) if spec.kind == "command" else kind.act
    bodies = _Bodies(spec, kind, act, world, agent)
    if spec.kind == "klass":
        cls = Blocking if spec.body == "sync" else Awaiting
        tool: BaseTool = cls(body=bodies.run, abody=bodies.arun)
    else:
        func, coroutine = SHAPES[kind.shape](bodies.run, bodies.arun)
        tool = StructuredTool.from_function(
            func=None if spec.body == "async" else func,
            coroutine=None if spec.body == "sync" else coroutine,
            name=spec.kind,
            description="Read.",
            **(kind.options or {}),
        )
    if spec.watched:
        tool.callbacks = [_Watcher(world)]
    if spec.contract is None:
        return tool
    fields = [FIELDS[name](world, agent.unit_s) for name in spec.contract]
    return speculatable(tool, **{name: value for each in fields for name, value in each.items()})


class _Watcher(BaseCallbackHandler):
    """A tool's own callback: sees every run that counts."""

    run_inline = True

    def __init__(self, world: World) -> None:
        self._world = world

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **_: Any) -> None:
        self._world.write(f"began {serialized['name']}")

    def on_tool_end(self, output: Any, **_: Any) -> None:
        self._world.write(f"ended {output.content}")

    def on_tool_error(self, error: BaseException, **_: Any) -> None:
        self._world.write(f"failed with {type(error).__name__}")


class _Bodies:
    """The two bodies of a tool: see the world, take their time, act."""

    def __init__(
        self, spec: ToolSpec, kind: Kind, act: Act, world: World, agent: AgentSpec
    ) -> None:
        self._spec = spec
        self._kind = kind
        self._act = act
        self._world = world
        self._agent = agent

    def run(self, values: dict[str, Any]) -> Any:
        call = self._call(values, self._world.version)
        if self._spec.kind == "write":
            self._world.change(live=False)
        if self._agent.clock == "sync":  # a thread takes no virtual time
            time.sleep(self._spec.latency * self._agent.unit_s)
        return self._act(self._noted(call))

    async def arun(self, values: dict[str, Any]) -> Any:
        live = self._agent.live and self._spec.kind == "plain"
        call = self._call(values, self._world.live if live else self._world.version)
        if self._spec.kind == "write":
            self._world.change(live=self._agent.live)
        if units := self._units(call):
            await asyncio.sleep(units * self._agent.unit_s)
        act = self._kind.aact
        return self._act(self._noted(call)) if act is None else await act(self._noted(call))

    def _units(self, call: Call) -> int:
        if call.q in self._kind.fatal:
            return SOON if self._agent.hurry else LATE
        if not self._agent.hurry:
            return self._spec.latency
        return 0 if self._spec.contract is not None else self._spec.latency // 4 * 4

    def _call(self, values: dict[str, Any], seen: int) -> Call:
        if self._spec.contract and "key" in self._spec.contract:
            values = {**values, "q": values["q"].lower()}
        return Call(tool=self._spec.kind, seen=seen, **values)

    def _noted(self, call: Call) -> Call:
        if not self._kind.declarable:
            self._world.write(call.value())
        return call
