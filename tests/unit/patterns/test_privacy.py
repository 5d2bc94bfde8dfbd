"""What goes into a file: structure and public constants, nobody's data."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from shop import LOAN, Run, Tool, call, output, taught, visits

from langchain_spectool import SpeculationMiddleware, speculatable
from langchain_spectool.speculators.patterns.model import Model
from langchain_spectool.speculators.patterns.published import published
from langchain_spectool.speculators.patterns.shared import Shared, run_digest
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.testing import ScriptedModel, calls, text

SECRETS = ("hunter", "zanzibar", "quetzal", "4711", "xylophone", "mem_99", "anna9")


def written(patterns: Patterns, path: Path) -> str:
    """Return the file of `patterns`."""
    patterns.save(path)
    return path.read_text()


def secretive(n: int) -> list[BaseMessage]:
    """Return a run that holds secrets wherever a run can hold any."""
    return [
        HumanMessage("My word is hunter, my friend is Zanzibar, look at quetzal please."),
        call("get_loan", 1, loan_id="quetzal"),
        output({"hunter": {"zanzibar": {"loan_id": "xylophone"}}, "n4711": "x"}, 1),
        call("get_loan", 2, loan_id="xylophone"),
        output({"xylophone@hunter.example": [{"loan_id": f"mem_99{n}"}]}, 2),
        call("get_loan", 3, loan_id=f"mem_99{n}"),
        output("Error: quetzal 4711", 3),
        call("hunter_4711", 4, zanzibar="quetzal"),
        output("anna9", 4),
        call("get_loan", 5, loan_id="anna9"),
    ]


def test_few_runs_leave_no_trace_of_their_data(tmp_path: Path) -> None:
    """Values, words, JSON keys and undeclared names of too few runs are not written."""
    patterns = taught([Run(secretive(n), f"run {n}") for n in range(2)], shared_across=3)
    text = written(patterns, tmp_path / "patterns.json")
    assert "get_loan" in text
    assert [secret for secret in SECRETS if secret in text.lower()] == []


def test_one_run_seen_often_counts_once(tmp_path: Path) -> None:
    """Repeating one run a hundred times makes nothing in it public."""
    patterns = taught([Run(secretive(1), "the same")] * 100)
    text = written(patterns, tmp_path / "patterns.json").lower()
    assert [secret for secret in SECRETS if secret in text] == []


def test_values_of_the_conversation_never_become_constants(tmp_path: Path) -> None:
    """An id that many runs share is still found in each conversation, so it is not kept."""
    patterns = taught([Run(secretive(1), f"run {n}") for n in range(12)])
    constants = patterns.models[None].bindings.known["get_loan", "loan_id"].constants.tally
    assert "xylophone" not in constants
    assert "mem_991" not in constants


def test_run_ids_are_not_kept(tmp_path: Path) -> None:
    """Neither the file nor the memory holds what runs were called."""
    patterns = taught([Run(run.messages, f"ticket-{run.run}") for run in visits(9)])
    assert "ticket" not in written(patterns, tmp_path / "patterns.json")
    assert "ticket" not in repr(vars(patterns.models[None].shared))


def test_no_member_of_the_shop_is_named(tmp_path: Path) -> None:
    """A file of many runs names tools, arguments and keys, and no member or loan."""
    text = written(taught(visits(40)), tmp_path / "patterns.json")
    assert "$.loans[*]" in text
    assert not any(word in text for word in ("anna", "@example", "mem_1", "L-00"))


def test_common_constant_is_kept(tmp_path: Path) -> None:
    """A value that no message holds, the same in many runs, is worth keeping."""
    tool = Tool("search", {"unit": {"type": "string"}})
    runs = [
        Run([HumanMessage(f"How long is road {n}?"), call("search", 1, unit="KM")], f"{n}", (tool,))
        for n in range(4)
    ]
    assert '"KM"' in written(taught(runs, shared_across=4), tmp_path / "a.json")
    assert '"KM"' not in written(taught(runs, shared_across=5), tmp_path / "b.json")


def test_tools_that_look_like_ids_are_left_out(tmp_path: Path) -> None:
    """A declared tool named after a customer is not written before enough runs used it."""
    tool = Tool("ask_customer_48213", {"loan_id": {"type": "string"}})
    runs = [Run([HumanMessage("Hi"), call(tool.name, 1, loan_id="x")], "1", (tool, LOAN))]
    assert "48213" not in written(taught(runs), tmp_path / "patterns.json")


@given(st.text(min_size=6, max_size=30), st.text(min_size=6, max_size=30))
def test_whatever_one_run_says_is_not_published(said: str, told: str) -> None:
    """Any text at all, of user or tool, stays out of what is written after one run."""
    said, told = f"QQ{said}QQ", f"ZZ{told}ZZ"
    messages: list[Any] = [
        HumanMessage(said),
        call("get_loan", 1, loan_id=said),
        output({told: {told: told}}, 1),
        call("get_loan", 2, loan_id=told),
    ]
    text = json.dumps(published(taught([Run(messages, "one")]).models[None]))
    assert json.dumps(said)[1:-1] not in text
    assert json.dumps(told)[1:-1] not in text


def test_names_that_no_tools_file_declares_need_enough_runs(tmp_path: Path) -> None:
    """Where the tools are not known, a name that few runs called is not written."""
    runs = [Run(secretive(1), f"run {n}", (), frozenset()) for n in range(2)]
    assert "get_loan" not in written(taught(runs, shared_across=3), tmp_path / "a.json")
    assert "get_loan" in written(taught(runs, shared_across=2), tmp_path / "b.json")


def test_item_is_public_after_enough_different_runs() -> None:
    """Only different runs count, and only their digests are held meanwhile."""
    shared = Shared(across=3)
    assert [shared.seen("w:tea", run_digest(run)) for run in "aabbc"] == [False] * 4 + [True]
    assert "w:tea" in shared


def test_memory_of_pending_items_is_bounded() -> None:
    """The oldest pending item goes first."""
    shared = Shared(across=2, limit=10)
    for n in range(1_000):
        shared.seen(f"w:{n}", 1)
    assert len(list(shared.pending())) == 10


def test_empty_model_publishes_nothing_but_its_prior() -> None:
    """A model that saw nothing writes no table."""
    content = published(Model())
    assert content["contexts"] == content["arguments"] == content["signatures"] == {}


IBAN = "DE89370400440532013000"
Cut = Callable[[Sequence[BaseMessage]], list[BaseMessage]]


def _trimmed(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    spoken = [at for at, message in enumerate(messages) if message.type == "human"]
    return [*messages[spoken[-1] :]]


def _summarised(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return [HumanMessage(f"Summary of {len(messages)} messages."), *_trimmed(messages)]


class Shortening(AgentMiddleware[Any, Any, Any]):
    """Shows the model a part of the conversation only."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self.cut = cut

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(messages=self.cut(request.messages)))


async def banked(cut: Cut, thread: Callable[[int], str | None], path: Path) -> str:
    """Return the file of an agent that was asked for a balance six times."""

    @speculatable
    @tool
    def balance(iban: str) -> str:
        """Return what is left."""
        return "ok"

    patterns = Patterns()
    agent = create_agent(
        ScriptedModel(turns=[calls(("balance", {"iban": IBAN})), text("done")]),
        [balance],
        middleware=[Shortening(cut), SpeculationMiddleware(speculators=[patterns])],
        checkpointer=InMemorySaver() if thread(0) else None,
    )
    for number in range(6):
        said = f"My IBAN is {IBAN}." if number == 0 else f"And again, number {number}"
        config: Any = {"configurable": {"thread_id": thread(number)}} if thread(number) else None
        await agent.ainvoke({"messages": said}, config)
    return written(patterns, path)


@pytest.mark.parametrize("cut", [list, _trimmed, _summarised], ids=["whole", "trimmed", "summary"])
async def test_one_thread_is_one_run_however_it_is_cut(tmp_path: Path, cut: Cut) -> None:
    """What a user said once is not public because the model is shown other messages each time."""
    assert IBAN not in await banked(cut, lambda _: "alice", tmp_path / "a.json")


@pytest.mark.parametrize("cut", [list, _trimmed, _summarised], ids=["whole", "trimmed", "summary"])
@pytest.mark.parametrize("thread", [str, lambda _: None], ids=["threads", "no threads"])
async def test_constant_of_many_runs_is_learned(
    tmp_path: Path, cut: Cut, thread: Callable[[int], str | None]
) -> None:
    """The same value in different threads, or runs without one, that no message holds."""
    assert IBAN in await banked(cut, lambda number: thread(number + 1), tmp_path / "patterns.json")
