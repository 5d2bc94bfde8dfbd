"""Where a Speculation meets its engine: nothing that goes wrong there reaches a run."""

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from langchain_spectool import Guess, Policy, Speculation, SpeculationMiddleware, speculatable
from langchain_spectool.engines import ToolCacheClient
from langchain_spectool.engines.install import Installer
from langchain_spectool.engines.scope import EngineScope
from langchain_spectool.graph import engine as link
from langchain_spectool.graph.place import place_in
from langchain_spectool.testing import RecordingObserver
from tests.engines.stage import Posts
from tests.engines.wire import Network, Play, calling, marker, saying


class _Oracle:
    name, samples, timeout_s, free = "oracle", 1, 5.0, True

    def guess(self, request: Any, sample: int) -> Any:
        if request.messages[-1].type == "human":
            yield Guess(tool="weather", args={"city": "Rome"})

    async def aguess(self, request: Any, sample: int) -> Any:
        for guess in self.guess(request, sample):
            yield guess


@speculatable
@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return "18C"


@tool
def send(city: str) -> str:
    """Send the weather."""
    return "sent"


class _Bench:
    """An agent whose engine is a script, in virtual time."""

    def __init__(self, *plays: Play, tools: Any = (weather,), posts: Posts | None = None) -> None:
        self.network, self.posts = Network(*plays), posts or Posts()
        self.observer = RecordingObserver()
        client = self.client = ToolCacheClient("http://engine/v1", async_transport=self.posts)
        self.speculation = Speculation(
            speculators=[_Oracle()],
            policy=Policy(benefit=None),
            engine=client,
            observers=[self.observer],
        )
        import httpx2  # noqa: PLC0415 - the library of the SDK at hand

        self.http = httpx2.AsyncClient(transport=self.network)
        model = ChatOpenAI(
            model="m",
            api_key="k",
            base_url="http://engine/v1",
            streaming=True,
            max_retries=0,
            http_async_client=self.http,
            http_client=httpx2.Client(),
        )
        self.agent = create_agent(model, tools, middleware=[self.speculation.middleware()])

    async def run(self) -> list[str]:
        state = await self.agent.ainvoke({"messages": [("user", "hi")]})
        await asyncio.sleep(0.1)
        assert self.speculation.engine is not None
        assert self.speculation.engine.in_progress == 0
        return [str(message.content) for message in state["messages"][1:]]

    @property
    def verdicts(self) -> list[str]:
        return [e.verdict for e in self.observer.events if e.kind == "engine"]

    @property
    def errors(self) -> list[str]:
        return [e.source for e in self.observer.events if e.kind == "error"]


FIRST = Play([0.2, calling(), marker(), saying()])
TWO = (Play([0.2, calling()]), Play([saying()]))
SAID = ["", "18C", "sunny"]


async def test_one_request() -> None:
    """In virtual time, with a script for an engine."""
    b = _Bench(FIRST)
    assert await b.run() == SAID
    assert b.verdicts == ["posted", "continued"]
    assert [body for _, _, body in b.posts.told] == [
        [{"name": "weather", "params": {"city": "Rome"}, "output": "18C", "uses": 1}]
    ]


def _broken(*_: Any, **__: Any) -> Any:
    msg = "planted"
    raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (Installer, "served"),
        (EngineScope, "begin"),
        (EngineScope, "current"),
        (link, "entry_for"),
    ],
)
async def test_our_failures_cost_the_gain(
    where: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one event; the run is what it is without an engine."""
    monkeypatch.setattr(where, what, _broken)
    b = _Bench(*TWO)
    assert await b.run() == SAID
    assert set(b.errors) == {"engine"}
    assert "continued" not in b.verdicts


@pytest.mark.parametrize("what", ["aend", "forget", "ended"])
async def test_failures_at_the_end_are_silent(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph unwinds: nothing of ours may reach it."""
    monkeypatch.setattr(EngineScope, what, _broken)
    b = _Bench(*TWO, tools=(weather, send))
    b.speculation.invalidate()
    assert await b.run() == SAID


class _Deaf(Posts):
    """Takes every connection, and answers none."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = 0

    async def handle_async_request(self, request: Any) -> Any:
        self.hanging += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging -= 1
        raise AssertionError(request)


@pytest.mark.parametrize("tools", [(weather,), (weather, send)])
async def test_posts_that_hang_delay_neither_the_run_nor_its_end(tools: Any) -> None:
    """It takes as long as with an engine that answers at once; what hangs is cancelled with it."""
    loop = asyncio.get_running_loop()
    took_s = []
    for posts in (Posts(), _Deaf()):
        b = _Bench(*(Play([0.2, calling()]), Play([0.2, saying()])), tools=tools, posts=posts)
        began_s = loop.time()
        await b.agent.ainvoke({"messages": [("user", "hi")]})
        took_s.append(loop.time() - began_s)
    assert took_s[0] == took_s[1] == pytest.approx(0.4)
    assert isinstance(posts, _Deaf)
    await asyncio.sleep(b.client.timeout_s)  # a DELETE may follow the end of the run, for so long
    assert posts.hanging == 0


async def test_a_graph_that_does_not_say_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its end there is no owner for what would be parked: no engine, and one event."""

    def endless(config: Any, owner: object) -> Any:
        place = place_in(config, owner)
        if place is None:
            return None
        from dataclasses import replace  # noqa: PLC0415 - reads best beside its use

        return replace(place, at_end=None, at_aend=None)

    monkeypatch.setattr(link, "place_in", endless)
    b = _Bench(*TWO)
    assert await b.run() == SAID
    assert b.verdicts == ["no_run_end"]


async def test_a_write_elsewhere_in_the_run_is_forgotten() -> None:
    """`invalidate` reaches every run; an undeclared call those of its own."""
    b = _Bench(Play([0.2, 1.0, calling()]), Play([saying()]))
    task = asyncio.create_task(b.run())
    await asyncio.sleep(0.5)
    b.speculation.invalidate()
    assert await task == SAID
    assert [method for method, _, _ in b.posts.told] == ["POST", "DELETE"]


async def test_an_undeclared_call_makes_it_forget() -> None:
    """Its start and its end: the engine may hold what another branch was told."""
    first = calling("chatcmpl-a", ("c1", "send", {"city": "Rome"}))
    b = _Bench(Play([0.2, first]), Play([saying()]), tools=(weather, send))
    told: list[int] = []
    assert b.speculation.engine is not None
    own = b.speculation.engine.wrote
    b.speculation.engine.wrote = lambda control: (told.append(1), own(control))[1]  # type: ignore[method-assign]
    assert await b.run() == ["", "sent", "sunny"]
    assert told == [1, 1]


async def test_in_shadow_nothing_is_told() -> None:
    """Nothing runs early, so the engine has nothing to know, and requests are the caller's."""
    b = _Bench(*TWO)
    config: Any = {"configurable": {"speculation": "shadow"}}
    await b.agent.ainvoke({"messages": [("user", "hi")]}, config)
    assert b.posts.told == []
    assert all("vllm_xargs" not in body for body in b.network.bodies)


def test_an_engine_by_its_place() -> None:
    """A string will do; a bad one is told at once."""
    ours = SpeculationMiddleware(engine="http://engine/v1")
    assert ours.speculation.engine is not None
    assert ours.speculation.engine.client.base_url == "http://engine/v1"
    assert Speculation().engine is None
    with pytest.raises(ValueError, match="an engine is at an HTTP URL"):
        Speculation(engine="engine:8000")
