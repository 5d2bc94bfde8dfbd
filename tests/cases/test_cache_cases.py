"""Cases of kind 5: what is kept of a result, for whom, and until when."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import HELLO, Form, Oracle, Rehearsal, Scene, Shape, comparable
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.prebuilt import ToolRuntime

from langchain_spectool import Guess, call_key, speculatable
from langchain_spectool.testing import calls, text

# --- B41, B43: keys


def _named(name: str, body: Callable[..., Any]) -> BaseTool:
    return StructuredTool.from_function(body, name=name, description="x")


class Callable1:
    def __call__(self, q: str) -> str:
        return "one"


class Callable2:
    def __call__(self, q: str) -> str:
        return "two"


def _one(q: str) -> str:
    return "one"


def _two(q: str) -> str:
    return "two"


def _typed(q: int) -> str:
    return "typed"


@pytest.mark.parametrize("bodies", [(_one, _two), (_one, _typed)], ids=["body", "schema"])
def test_b41_one_name_two_tools(bodies: tuple[Any, Any]) -> None:
    """B41: tools that only share a name share no key."""
    keys = [call_key(_named("search", body), {"q": "1"}) for body in bodies]
    assert None not in keys
    assert keys[0] != keys[1]


def test_b41_version_is_part_of_the_key() -> None:
    """B41: a new version of a tool answers nothing for the old one."""
    keys = {
        call_key(speculatable(_named("search", _one), version=version), {"q": "1"})
        for version in ("", "1", "2")
    }
    assert len(keys) == 3


@pytest.mark.parametrize("name", ["a,b", "a:b", "a/b", "a b", "1:a", "a{"])
def test_b41_separators_in_names(name: str) -> None:
    """B41: separators in a name or in a value cannot make two calls look alike."""
    assert call_key(_named(name, _one), {"q": "c"}) != call_key(_named(name[0], _one), {"q": "c"})
    assert call_key(_named("a", _one), {"q": name}) != call_key(_named("a", _one), {"q": name[0]})


@speculatable
@tool
def three(a: str, b: Any, c: Any = None) -> str:
    """Take three values."""
    return f"{a}{b}{c}"


def test_b43_order_and_identity_do_not_count() -> None:
    """B43: equal values have one key, in whatever order and as whatever objects they come."""
    once = [10**9]
    equal = [
        {"a": "x", "b": {"p": 1, "q": [once, once]}},
        {"b": {"q": [[10**9], [10**9]], "p": 1}, "a": "x"},
    ]
    assert call_key(three, equal[0]) == call_key(three, equal[1]) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "web", "b": 12, "c": 3}, {"a": "web", "b": 1, "c": 23}),
        ({"a": "a:b", "b": "c"}, {"a": "a", "b": "b:c"}),
        ({"a": "ab", "b": ""}, {"a": "a", "b": "b"}),
        ({"a": "x", "b": [["a", "b"]]}, {"a": "x", "b": [["a"], ["b"]]}),
    ],
)
def test_b43_joined_parts_do_not_collide(one: dict[str, Any], other: dict[str, Any]) -> None:
    """B43: where one value ends and the next begins is part of the key."""
    assert call_key(three, one) != call_key(three, other)


# --- B48: errors


ERRORS = [
    pytest.param("raised", True, id="raised-guessed"),
    pytest.param("raised", False, id="raised"),
    pytest.param("message", True, id="message-guessed"),
    pytest.param("message", False, id="message"),
]


@pytest.mark.parametrize(("error", "guessed"), ERRORS)
async def test_b48_errors_are_never_kept(
    error: str, guessed: bool, shape: Shape, ran: list[Any]
) -> None:
    """B48 S5 S6: after an error, raised or returned, the next equal call runs."""

    @tool
    def flaky(x: str) -> Any:
        """Fail once."""
        ran.append(x)
        if len(ran) > 1:
            return "ok"
        if error == "raised":
            raise RuntimeError("upstream 503")
        return ToolMessage("denied", tool_call_id="c0", status="error")

    speculatable(flaky, deterministic=True)
    flaky.handle_tool_error = True
    asked = ("flaky", {"x": "1"})
    turns = [calls(asked), calls(asked, prefix="d"), text("done")]
    node = {"handle_tool_errors": True} if shape["form"] == "graph" else {}
    scene = Scene(turns=turns, tools=[flaky], node=node, **shape)
    played = Rehearsal(scene, [asked] if guessed else [])
    ours = await played.run()
    if guessed:
        assert [content for _, _, content in ours.tools] == ["ok", "ok"]
        assert set(played.verdicts("discarded")) <= {"failed", "tainted"}
    elif shape["form"] == "graph" or error == "message":
        assert ours.tools[0][1] == "error"
        assert ours.tools[1] == ("d0", "success", "ok")
        assert len(ran) == 2
    else:
        assert ours.error == (RuntimeError, "upstream 503")


# --- B49: one user's result for another


@dataclasses.dataclass
class User:
    tenant: str | None


@pytest.mark.parametrize("tenants", [("A", "B"), (None, ""), ("Alice", "alice")], ids=repr)
@pytest.mark.parametrize("reuse", ["turn", "run"])
async def test_b49_runs_share_nothing(
    tenants: tuple[Any, Any], reuse: Any, shape: Shape, ran: list[Any]
) -> None:
    """B49: a result never leaves its run, whoever the tenants are and even if none is known."""

    @speculatable(deterministic=True, reuse=reuse)
    @tool
    def my_access(runtime: ToolRuntime[User]) -> str:
        """List what the current user may do."""
        ran.append(runtime.context.tenant)
        return f"access of {runtime.context.tenant!r}"

    asked = [("my_access", {})]
    scene = Scene(turns=[calls(*asked), text("done")], tools=[my_access], **shape)
    if scene.form == "create_agent":
        scene.options = {"context_schema": User}
    played = Rehearsal(scene, asked)
    for tenant in (*tenants, *tenants):
        context = User(tenant)
        if scene.way == "invoke":
            state = await asyncio.to_thread(played.agent.invoke, HELLO, context=context)
        else:
            state = await played.agent.ainvoke(HELLO, context=context)
        assert comparable(state["messages"])[2][1] == f"access of {tenant!r}"
    assert ran == [*tenants, *tenants]
    assert played.report.hits == 4


# --- B50: stale after a write


class World:
    """A value that one tool reads and another writes."""

    def __init__(self, *, fails: bool = False) -> None:
        self.k = 1
        self.reads = 0

        @speculatable(deterministic=True, reuse="run")
        @tool
        def read(k: str) -> str:
            """Read the value."""
            self.reads += 1
            return str(self.k)

        @tool
        def write(value: int) -> str:
            """Write the value."""
            self.k = value
            if fails:
                raise RuntimeError("did it work?")
            return "written"

        self.tools = [read, write]


READ: tuple[str, dict[str, Any]] = ("read", {"k": "k"})
WRITE: tuple[str, dict[str, Any]] = ("write", {"value": 2})


async def test_b50_write_drops_earlier_reads(shape: Shape) -> None:
    """B50 S1: a read from before a committed write is not served after it."""
    world = World()
    scene = Scene(
        turns=[calls(WRITE), calls(READ, prefix="d"), text("done")], tools=world.tools, **shape
    )
    played = Rehearsal(scene, [READ])
    ours = await played.run()
    assert ours.tools[1] == ("d0", "success", "2")
    assert world.reads == 2
    assert played.verdicts("discarded") == ["other_epoch"]


@pytest.mark.parametrize("again", [True, False])
async def test_b50_reads_between_writes_are_served(again: bool, shape: Shape) -> None:
    """B50: a read from after the write is served, so the fence is not the end of speculation."""
    world = World()
    scene = Scene(
        turns=[calls(WRITE), calls(READ, prefix="d"), text("done")], tools=world.tools, **shape
    )
    played = Rehearsal(scene, [READ] if again else [], [READ])
    ours = await played.run()
    assert ours.tools[1] == ("d0", "success", "2")
    assert played.report.hits == 1


async def test_b50_failed_write_counts_as_written(way: Any) -> None:
    """B50 S3: a write of unknown outcome fences like one that succeeded."""
    world = World(fails=True)
    scene = Scene(
        turns=[calls(WRITE), calls(READ, prefix="d"), text("done")],
        tools=world.tools,
        form="graph",
        way=way,
        node={"handle_tool_errors": True},
    )
    played = Rehearsal(scene, [READ])
    ours = await played.run()
    assert ours.tools[1] == ("d0", "success", "2")
    assert world.reads == 2


@pytest.mark.parametrize("order", [(WRITE, READ), (READ, WRITE)], ids=["write-read", "read-write"])
async def test_b50_write_and_read_in_one_turn(order: Any, shape: Shape) -> None:
    """B50 S4: of calls in one turn, those after a write are not answered by guesses."""
    world = World()
    scene = Scene(turns=[calls(*order), text("done")], tools=world.tools, **shape)
    played = Rehearsal(scene, [READ])
    ours = await played.run()
    [value] = [content for _, _, content in ours.tools if content in ("1", "2")]
    fenced = order[0] == WRITE
    assert played.report.hits == (0 if fenced else 1)
    assert value in (("1", "2") if fenced else ("1",))


async def test_b50_read_in_flight_during_the_write(form: Form) -> None:
    """B50: a read that began before a write ended and lands after it is not served later."""
    world = World()

    @speculatable(reuse="run")
    @tool("read")
    async def slow_read(k: str) -> str:
        """Read, then take long to answer."""
        seen = world.k
        world.reads += 1
        await asyncio.sleep(1.5)
        return str(seen)

    scene = Scene(
        turns=[calls(WRITE), calls(READ, prefix="d"), text("done")],
        tools=[slow_read, world.tools[1]],
        form=form,
    )
    played = Rehearsal(scene, [READ])
    ours = await played.run()
    assert ours.tools[1] == ("d0", "success", "2")
    assert played.report.hits == 0
    assert world.reads == 2


@pytest.mark.parametrize("touched", ["orders", "people"])
async def test_b50_write_outside_of_tools(touched: str, shape: Shape, ran: list[Any]) -> None:
    """B50: a write that no tool call makes is told by `invalidate`, by what it touched."""

    @speculatable(reuse="run", tags={"orders"})
    @tool
    def orders(k: str) -> str:
        """Read orders."""
        ran.append(k)
        return f"orders of {k}"

    asked = [("orders", {"k": "k"})]
    scene = Scene(
        turns=[calls(("orders", {"k": "other"})), calls(*asked, prefix="d"), text("done")],
        tools=[orders],
        **shape,
    )
    played: Rehearsal

    class Writer(Oracle):
        """Writes while the model writes its second turn."""

        def guess(self, request: Any, sample: int) -> Iterator[Guess]:
            if len(request.messages) > 1:
                ran.append("write")
                played.spec.invalidate([touched])
            yield from super().guess(request, sample)

    played = Rehearsal(scene, speculators=[writer := Writer(asked)])
    played.model.cue = writer.wait
    ours = await played.run()
    assert "write" in ran
    assert ran.count("k") == (2 if touched == "orders" else 1)
    assert played.verdicts("discarded") == (["invalidated"] if touched == "orders" else [])
    assert ours.error is None
