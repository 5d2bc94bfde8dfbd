"""A tracer sees the same tree of runs with speculation on as without it.

Neither the draft models nor the tools' early runs are in it, though both happened.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.graph.differential.observe import observe
from tests.graph.differential.plain import difference
from tests.graph.differential.specs import AgentSpec, CallSpec, ToolSpec, TurnSpec

_FORMS: dict[str, dict[str, Any]] = {
    "create_agent": {"form": "create_agent"},
    "create_agent with others": {
        "form": "create_agent",
        "middleware": ("retry", "edit", "todo"),
        "place": 1,
    },
    "function": {"form": "state_graph"},
    "sequence": {"form": "state_graph", "node": "chain"},
    "dataclass": {"form": "state_graph", "state": "dataclass", "messages_key": "chat"},
    "react v1": {"form": "react", "version": "v1"},
    "react v2": {"form": "react", "version": "v2"},
    "parallel subgraphs": {"form": "create_agent", "around": "parallel"},
    "nested": {"form": "create_agent", "around": "nested"},
}


def _call(tool: str, q: str) -> CallSpec:
    return CallSpec(tool=tool, args={"q": q})


_RIGHT = (_call("plain", "b"), _call("pair", "A"), _call("polite", "bad"), _call("chain", "b"))
_SPEC = AgentSpec(
    tools=(
        ToolSpec(kind="plain", body="both", latency=2, contract=()),
        ToolSpec(kind="pair", body="both", latency=3, contract=("deterministic",)),
        ToolSpec(kind="polite", body="both", contract=()),
        ToolSpec(kind="chain", body="both", contract=()),
        ToolSpec(kind="command", body="both"),
    ),
    turns=(
        TurnSpec(calls=_RIGHT, guesses=(*_RIGHT, _call("plain", "bad"))),
        TurnSpec(
            calls=(_call("plain", "A"), _call("command", "b")), guesses=(_call("plain", "A"),)
        ),
    ),
    sources=("drafts", "early"),
)


def _spec(form: str, entry: str, clock: str) -> AgentSpec:
    spec = replace(_SPEC, entry=entry, clock=clock, **_FORMS[form])
    if clock == "sync":
        # Real time: long enough for a busy machine to start all early runs.
        turns = tuple(replace(turn, generation=200) for turn in spec.turns)
        spec = replace(spec, turns=turns)
    return spec


def _names(spans: list[Any]) -> Iterator[str]:
    for span in spans:
        yield span[0]
        yield from _names(span[-1])


@pytest.mark.parametrize("clock", ["async", "sync"])
@pytest.mark.parametrize("entry", ["invoke", "stream"])
@pytest.mark.parametrize("form", _FORMS)
def test_tree_of_runs_is_the_same(form: str, entry: str, clock: str) -> None:
    """Names, kinds, inputs, outputs, errors, tags, metadata and parents are those of stock."""
    spec = _spec(form, entry, clock)
    stock, on = observe(spec, "stock"), observe(spec, "on")
    assert difference(stock.spans, on.spans) is None
    assert on.hits >= (3 if clock == "async" else 1)  # real threads may start late
    assert not on.errors


@pytest.mark.parametrize("form", _FORMS)
def test_tree_of_runs_is_that_of_the_committed_calls(form: str) -> None:
    """There is a run for each committed call and each turn, and none for guesses and drafts."""
    spec = _spec(form, "invoke", "async")
    names = [*_names(observe(spec, "on").spans)]
    agents = 2 if spec.around != "none" else 1
    assert names.count("plain") == 2 * agents
    assert names.count("pair") == names.count("polite") == names.count("command") == agents
    assert names.count("ScriptedModel") == 3 * agents
    assert "speculation" not in names
