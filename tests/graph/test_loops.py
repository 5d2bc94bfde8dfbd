"""Leaving loops, threads and the interpreter: none of them waits for us."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from langchain_spectool import Speculation
from langchain_spectool._runtime import pool as pool_module
from langchain_spectool._runtime import runs
from langchain_spectool._runtime.pool import POOL
from langchain_spectool.testing import ScriptedModel, Turn, calls, text
from tests.graph.leaving_scene import BOTH, HELLO, LOOKS, THREAD, Bodies, Scene, blocking, forms
from tests.graph.leftovers import PATIENCE_S, our_threads, until

pytestmark = pytest.mark.usefixtures("quick_collector", "nothing_left")

UNHURRIED_S = 0.2
"""Real seconds of a turn in which a guess is sure to come, on a busy machine as well."""


# --- loops


@forms
def test_loop_that_asyncio_runs(form: str) -> None:
    """`asyncio.run` finds nothing of ours to cancel when the agent was its last work."""
    scene = Scene(form, [text("done")], generation_s=0.1)
    asyncio.run(scene.agent.ainvoke(HELLO))
    assert runs.in_progress() == 0
    assert scene.balanced()
    assert scene.bodies.ends == ["cancelled"] * 2


@forms
def test_loop_that_is_closed_after_the_run(form: str) -> None:
    """A wrong guess still flies when its run ends and its loop is closed: nothing is said (B35)."""
    scene = Scene(form, [text("done")], generation_s=0.1)
    loop = asyncio.SelectorEventLoop()
    loop.run_until_complete(scene.agent.ainvoke(HELLO))
    loop.close()
    gc.collect()
    assert runs.in_progress() == 0
    assert scene.verdicts("discarded") == ["unclaimed"] * 2


@forms
@pytest.mark.filterwarnings("ignore:coroutine 'AsyncCallbackManager:RuntimeWarning")
@pytest.mark.parametrize("after_s", [0.002, 0.01, 0.03], ids=["sampling", "flying", "committed"])
def test_loop_that_is_closed_in_the_middle(
    form: str, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped and closed, a loop takes everything along; only stock code has a word to say."""
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: said.append(_raised_in(args.exc_value)))
    monkeypatch.setattr(runs, "SWEEP_S", 0.002)
    until(lambda: "spectool-janitor" not in our_threads())
    scene = Scene(form, [LOOKS], generation_s=0.02)
    loop = asyncio.SelectorEventLoop()
    task = loop.create_task(scene.agent.ainvoke(HELLO))
    loop.call_later(after_s, loop.stop)
    loop.run_forever()
    for each in asyncio.all_tasks(loop):
        if not each.get_name().startswith("spectool"):
            each._log_destroy_pending = False  # type: ignore[attr-defined] # those of stock code
    loop.close()
    del task, each
    gc.collect()
    until(lambda: runs.in_progress() == 0 and scene.balanced())
    gc.collect()
    assert not [path for path in said if "langchain_spectool" in path]


def _raised_in(error: BaseException | None) -> str:
    """Return the file that raised `error`, or what else it may be."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return frames[-1].filename if frames else repr(error)


# --- threads


@pytest.fixture
def _quick_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle threads of ours end soon."""
    monkeypatch.setattr(pool_module, "IDLE_S", 0.005)
    monkeypatch.setattr(runs, "SWEEP_S", 0.005)
    until(lambda: not our_threads())


def opened_when_joined(scene: Scene) -> None:
    """Let the bodies return once a committed call waits for one of them."""

    def joined() -> bool:
        return any(flight.waiters for run in runs._all() for flight in [*run.aloft])

    def watch() -> None:
        until(joined)
        scene.bodies.gate.set()

    threading.Thread(target=watch, name="watch").start()


def _streamed(scene: Scene) -> None:
    stream = scene.agent.stream(HELLO, stream_mode="updates")
    next(stream)
    stream.close()


def _invoked(scene: Scene) -> None:
    with suppress(ValueError):
        scene.agent.invoke(HELLO, THREAD)


BLOCKING_WAYS: dict[str, tuple[Callable[[Scene], None], list[Turn | AIMessage], bool]] = {
    "success": (_invoked, [text("done")], False),
    "model error": (_invoked, [Turn(error=ValueError("planted"))], False),
    "approval": (_invoked, [BOTH], True),
    "disconnected after the model": (_streamed, [LOOKS], False),
}


@forms
@pytest.mark.parametrize("way", BLOCKING_WAYS)
@pytest.mark.usefixtures("_quick_threads")
def test_blocking_run_leaves_only_bodies(form: str, way: str) -> None:
    """After `invoke` or `stream` only the threads inside a user's body are left, and end."""
    leave, turns, gated = BLOCKING_WAYS[way]
    scene = blocking(form, turns, gated=gated, paced=True)
    leave(scene)
    until(lambda: runs.in_progress() == 0)
    assert scene.balanced()
    assert scene.verdicts("guess") == ["run"] * 2
    assert len(scene.verdicts("discarded")) == 2
    until(lambda: len(our_threads()) == 2)
    assert sorted(our_threads()) == sorted(scene.bodies.threads)
    scene.bodies.gate.set()
    until(lambda: not our_threads())
    assert len(scene.verdicts("discarded")) == 2


@forms
@pytest.mark.usefixtures("_quick_threads")
def test_blocking_tool_error(form: str) -> None:
    """A call that fails beside one that is served: the run raises, and nothing is left."""
    scene = blocking(form, [BOTH], paced=True, generation_s=UNHURRIED_S)
    scene.bodies.fails_last = True
    opened_when_joined(scene)
    with pytest.raises(ValueError, match="planted"):
        scene.agent.invoke(HELLO)
    until(lambda: runs.in_progress() == 0)
    until(lambda: not our_threads())
    assert scene.balanced()


@forms
@pytest.mark.usefixtures("_quick_threads")
def test_hundred_blocking_runs_at_once(form: str) -> None:
    """Many runs share the pool: each gets its answer, and all books balance in the end."""
    scene = blocking(form, [LOOKS, text("done")])
    scene.bodies.gate.set()
    with ThreadPoolExecutor(120) as executor:
        results = list(executor.map(lambda _: scene.agent.invoke(HELLO), range(120)))
    assert {result["messages"][-1].content for result in results} == {"done"}
    assert {result["messages"][-2].content for result in results} == {"a"}
    until(lambda: POOL.busy == 0 and runs.in_progress() == 0)
    assert scene.balanced()
    until(lambda: not our_threads())


@forms
async def test_hundred_runs_at_once(form: str) -> None:
    """Many runs of one loop keep out of each other's way."""
    scene = Scene(form, [LOOKS, text("done")])
    results = await asyncio.gather(*(scene.agent.ainvoke(HELLO) for _ in range(120)))
    assert {result["messages"][-1].content for result in results} == {"done"}
    await scene.check_left()
    in_flight = scene.verdicts("guess").count("run")
    assert in_flight >= 64
    assert scene.verdicts("claim").count("joined") == in_flight - len(scene.verdicts("discarded"))


@forms
@pytest.mark.real_loop
async def test_invoke_inside_a_running_loop(form: str) -> None:
    """Called where a loop runs, as in a notebook, `invoke` speculates in threads all the same."""
    scene = blocking(form, [LOOKS, text("done")], paced=True, generation_s=UNHURRIED_S)
    opened_when_joined(scene)
    result = scene.agent.invoke(HELLO)
    assert [message.content for message in result["messages"][-2:]] == ["a", "done"]
    assert scene.verdicts("claim") == ["joined"]
    until(lambda: POOL.busy == 0 and runs.in_progress() == 0)
    assert scene.balanced()


@pytest.mark.real_loop
async def test_early_bodies_keep_out_of_the_loops_executor() -> None:
    """Twelve blocking guesses fly; a committed blocking call has the executor to itself."""
    bodies = Bodies()
    committed: list[str] = []

    @tool
    def work(q: str) -> str:
        """Work in a thread."""
        committed.append(threading.current_thread().name)
        return q

    drafted = calls(*(("look", {"q": str(n)}) for n in range(12)))
    spec = Speculation(
        [*bodies.tools(synchronous=True), work], draft=ScriptedModel(script=lambda _: drafted)
    )
    main = ScriptedModel(turns=[calls(("work", {"q": "w"})), text("done")], generation_s=0.1)
    agent = create_agent(main, spec.tools, middleware=[spec.middleware()])
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="only"))
    try:
        result = await asyncio.wait_for(agent.ainvoke(HELLO), PATIENCE_S)
    finally:
        bodies.gate.set()
    assert result["messages"][-2].content == "w"
    assert committed == ["only_0"]
    assert len(bodies.threads) >= 12
    assert all(name.startswith("spectool-") for name in bodies.threads)


# --- the interpreter's end

EXIT = """
import asyncio, threading, time
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_spectool import SpeculationMiddleware, speculatable
from langchain_spectool.testing import ScriptedModel, calls, text

started = threading.Event()

@speculatable
@tool
def look(q: str) -> str:
    "Look something up, for long."
    started.set()
    time.sleep(300)
    return q

draft = ScriptedModel(script=lambda _: calls(("look", {{"q": "a"}})))
main = ScriptedModel(turns=[text("done")], generation_s=0.2)
agent = create_agent(main, [look], middleware=[SpeculationMiddleware(draft=draft)])
asked = {{"messages": [("user", "hi")]}}
print({run}["messages"][-1].content, started.is_set(), flush=True)
"""


@pytest.mark.parametrize("run", ["agent.invoke(asked)", "asyncio.run(agent.ainvoke(asked))"])
def test_interpreter_does_not_wait_for_abandoned_bodies(run: str) -> None:
    """A wrong guess whose body sleeps on in a thread does not hold the program's end."""
    script = textwrap.dedent(EXIT).format(run=run)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.stdout == "done True\n"
    assert ended.stderr == ""
    assert ended.returncode == 0
