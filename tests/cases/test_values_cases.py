"""Cases of kind 5: results of every type, served as they are (B24, B45), and never shared (B46)."""

import dataclasses
import datetime as dt
import decimal
import enum
import math
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import HELLO, Rehearsal, Scene, Shape, outcome
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from langchain_spectool import speculatable
from langchain_spectool.testing import calls, text


class Model(BaseModel):
    a: int


@dataclasses.dataclass
class Data:
    a: int


class Choice(enum.Enum):
    X = 1


class Opaque:
    """An object that nothing can copy or store."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


def _some_lambda() -> int:
    return 1


VALUES: dict[str, Callable[[], Any]] = {
    "pydantic": lambda: Model(a=1),
    "dataclass": lambda: Data(1),
    "decimal": lambda: decimal.Decimal("1.10"),
    "datetime": lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "tuple": lambda: (1, 2),
    "set": lambda: {1, 2},
    "bytes": lambda: b"\x00",
    "enum": lambda: Choice.X,
    "uuid": lambda: uuid.UUID(int=1),
    "nan": lambda: math.nan,
    "exception": lambda: ValueError("x"),
    "function": lambda: _some_lambda,
    "none": lambda: None,
    "blocks": lambda: [{"type": "text", "text": "hi"}],
}


@pytest.mark.parametrize("shared", [True, False], ids=["deterministic", "one-to-one"])
@pytest.mark.parametrize("value", VALUES)
async def test_b45_served_value_is_the_live_one(value: str, shared: bool, shape: Shape) -> None:
    """B45: served, a value has the type and the content it has live, artifact included."""

    @speculatable(deterministic=shared)
    @tool(response_format="content_and_artifact")
    def make(x: str) -> tuple[Any, Any]:
        """Make content and artifact."""
        made = VALUES[value]()
        return made, made

    asked = [("make", {"x": "1"}), ("make", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[make], **shape)
    played = Rehearsal(scene, asked[:1])
    ours, stock = await played.run(), await scene.stock()
    assert repr(ours.said) == repr(stock.said)
    assert (played.report.guesses, played.report.hits) == (1, 2 if shared else 1)
    if stock.error is None:
        made = [[m.artifact for m in it.state["messages"][2:4]] for it in (ours, stock)]
        assert repr(made[0]) == repr(made[1])
        assert [type(each) for each in made[0]] == [type(each) for each in made[1]]


def _generator() -> Iterator[int]:
    yield from (1, 2)


async def _coroutine() -> int:
    return 1


@pytest.mark.parametrize("shared", [True, False], ids=["deterministic", "one-to-one"])
async def test_b45_stream_is_never_kept(shared: bool, shape: Shape, ran: list[Any]) -> None:
    """B45: what can be read only once is made anew for every call."""

    @speculatable(deterministic=shared)
    @tool(response_format="content_and_artifact")
    def lines(x: str) -> tuple[str, Any]:
        """Return a generator."""
        ran.append(x)
        return "see artifact", _generator()

    asked = [("lines", {"x": "1"}), ("lines", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[lines], **shape)
    played = Rehearsal(scene, asked[:1])
    ours = await played.run()
    assert [list(message.artifact) for message in ours.state["messages"][2:4]] == [[1, 2], [1, 2]]
    assert played.report.hits == 0
    assert len(ran) == 3


@pytest.mark.parametrize("stored", [True, False])
async def test_b24_opaque_artifact(stored: bool, shape: Shape) -> None:
    """B24: an artifact that no checkpointer can store fails or works exactly as in stock."""

    @speculatable
    @tool(response_format="content_and_artifact")
    def art(x: str) -> tuple[str, Opaque]:
        """Return an opaque artifact."""
        return f"c:{x}", Opaque()

    asked = [("art", {"x": "1"})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[art], **shape)
    seen = []
    for spec in (False, True):
        scene.options = {"checkpointer": InMemorySaver()} if stored else {}
        agent = Rehearsal(scene, asked).agent if spec else scene.agent()
        config = {"configurable": {"thread_id": "1"}}
        seen.append(await outcome(agent, HELLO, config, way=scene.way))
    stock, ours = seen
    assert ours.messages == stock.messages
    assert (ours.error is None, stock.error is None) == (not stored, not stored)
    if ours.error is not None and stock.error is not None:
        assert ours.error[0] is stock.error[0]


# --- B46: mutable results


class Editor:
    """Changes what it reads, as a caller may."""

    @staticmethod
    def spoil(rows: list[Any]) -> None:
        rows[0]["n"] = 99
        rows.append("junk")


@pytest.mark.parametrize("guessed", [0, 1])
async def test_b46_first_reader_spoils_nothing(guessed: int, shape: Shape, ran: list[Any]) -> None:
    """B46: of a shared result every reader, and the keeper, holds a copy of its own."""

    @speculatable(deterministic=True)
    @tool(response_format="content_and_artifact")
    def rows(q: str) -> tuple[str, list[Any]]:
        """Return rows."""
        ran.append(q)
        return "rows", [{"n": 1}]

    asked = ("rows", {"q": "x"})
    scene = Scene(
        turns=[calls(asked, asked), calls(asked, prefix="d"), text("done")], tools=[rows], **shape
    )
    ours = await Rehearsal(scene, [asked] * guessed).run()
    artifacts = [m.artifact for m in ours.state["messages"] if isinstance(m, ToolMessage)]
    assert artifacts == [[{"n": 1}]] * 3
    for artifact in artifacts:
        Editor.spoil(artifact)
    assert [each[0] for each in artifacts] == [{"n": 99}] * 3
    assert len({id(artifact) for artifact in artifacts}) == 3
    assert [len(artifact) for artifact in artifacts] == [2, 2, 2]


@pytest.mark.parametrize("guessed", [0, 1])
async def test_b46_uncopyable_result_is_given_once(
    guessed: int, shape: Shape, ran: list[Any]
) -> None:
    """B46: what cannot be copied is given to one reader, and made again for the next."""

    @speculatable(deterministic=True)
    @tool(response_format="content_and_artifact")
    def opaque(q: str) -> tuple[str, Opaque]:
        """Return what nothing can copy."""
        ran.append(q)
        return "opaque", Opaque()

    asked = ("opaque", {"q": "x"})
    scene = Scene(turns=[calls(asked, asked), text("done")], tools=[opaque], **shape)
    ours = await Rehearsal(scene, [asked] * guessed).run()
    artifacts = [m.artifact for m in ours.state["messages"] if isinstance(m, ToolMessage)]
    assert len({id(artifact) for artifact in artifacts}) == 2
    assert len(ran) == 2
