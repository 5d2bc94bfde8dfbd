"""Draws agents whose outcome does not depend on which of two parallel calls is done first.

Only time may differ between the arms, so what stock LangGraph leaves to timing is kept out:

- a call that may end its turn (an error nobody handles, an interrupt) takes `LATE` in async runs,
  when every sibling is done in every arm, and is the only one of its kind in its turn; where
  it cannot be late (a blocking body, a refusal before the body, a run in threads) it is alone;
- or else (`hurry`) it comes soon and cuts others off, but then declared tools take no time at
  all, so that stock has the latencies that hits have;
- two agents that share a world (`around`) neither write to it nor end each other's run;
- reads see what was written before their turn began, except live ones (see `World`), which
  then have no contract that makes a claim wait before the body runs.
"""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.graph.differential.build import HANDLING
from tests.graph.differential.kinds import KINDS, QUERIES
from tests.graph.differential.specs import AgentSpec, CallSpec, ToolSpec, TurnSpec
from tests.graph.differential.stacks import EXCLUSIVE, MIDDLEWARE
from tests.graph.differential.tools import FIELDS

NOBODY = "nobody"
"""A tool that no agent has."""
_STRICT = frozenset({"none", "types", "type", "value_function"})
"""Handlings under which a call with invalid arguments ends the run."""
_WAITING = frozenset({"brief", "token", "blind"})
_ALONE = frozenset({"fallback", "model_retry", "summary", "approve", "limit_end", "limit_error"})
"""Middleware that one of two agents would end the run with, or know the turn by."""
_READERS = [name for name, kind in KINDS.items() if kind.declarable]
_WRITERS = [name for name, kind in KINDS.items() if not kind.declarable]


@st.composite
def agents(draw: st.DrawFn, clock: str) -> AgentSpec:
    """Draw an agent, and how it is run."""
    around = draw(st.sampled_from(["none"] * 7 + ["parallel", "nested", "batch"]))
    form = draw(st.sampled_from(["create_agent", "create_agent", "state_graph", "react"]))
    entries = ["invoke", "stream"] + ["events"] * (clock == "async")
    entry = "invoke" if around == "batch" else draw(st.sampled_from(entries))
    stack = draw(_stacks(around)) if form == "create_agent" else ()
    alone = around == "none"
    options: dict[str, Any] = {
        "form": form,
        "clock": clock,
        "entry": entry,
        "around": around,
        "tools": draw(_toolboxes(clock, around)),
        "sources": draw(_sources(entry)),
        "checkpointer": "approve" in stack or (around != "batch" and draw(_mostly)),
        "repeat_ids": draw(st.booleans()),
        "hurry": clock == "async" and draw(st.booleans()),
        "pause": alone and not draw(_nearly_always),
        "middleware": stack,
        "place": draw(st.integers(0, len(stack))),
        "structured": form == "create_agent" and not draw(_mostly),
    }
    if form != "create_agent":
        options |= draw(_node_options(form, alone=alone))
    bare = AgentSpec(turns=(), **options)
    size = draw(st.sampled_from([1, 2, 2, 3]))
    turns = draw(st.lists(_turns(bare), min_size=size, max_size=size))
    return AgentSpec(turns=tuple(turns), **options)


_GENERATION = {"async": (0, 1, 2, 3, 5), "sync": (1, 3, 10, 20)}
"""Units of time the main model takes; threads need some of them to start."""
_mostly = st.sampled_from([True, True, True, False])
_nearly_always = st.sampled_from([True] * 9 + [False])


@st.composite
def _toolboxes(draw: st.DrawFn, clock: str, around: str) -> tuple[ToolSpec, ...]:
    # Two agents that share a world neither write nor end each other's run.
    readers = [n for n in _READERS if around == "none" or not KINDS[n].fatal]
    kinds = draw(st.lists(st.sampled_from(readers), min_size=1, max_size=4, unique=True))
    if around == "none":
        kinds += draw(st.lists(st.sampled_from(_WRITERS), max_size=2, unique=True))
    return tuple(draw(_tools(kind, clock)) for kind in kinds)


@st.composite
def _tools(draw: st.DrawFn, kind: str, clock: str) -> ToolSpec:
    bodies = ["sync", "both"] + ["async"] * 2 * (clock == "async")
    contract = draw(_contracts(kind)) if KINDS[kind].declarable and draw(_nearly_always) else None
    return ToolSpec(
        kind=kind,
        body=draw(st.sampled_from(bodies)),
        latency=draw(st.integers(0, 8 if clock == "async" else 3)),
        contract=contract,
        watched=not draw(_nearly_always),
    )


@st.composite
def _contracts(draw: st.DrawFn, kind: str) -> tuple[str, ...]:
    if not draw(_nearly_always):
        return ("late",)
    names = [name for name in FIELDS if name != "late"]
    if kind == "plain":
        names = [name for name in names if name not in _WAITING]
    chosen = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    return tuple(name for name in chosen if not (name == "blind" and "token" in chosen))


@st.composite
def _stacks(draw: st.DrawFn, around: str) -> tuple[str, ...]:
    known = [name for name in MIDDLEWARE if around == "none" or name not in _ALONE]
    names = draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
    for rivals in EXCLUSIVE:
        for rival in [name for name in names if name in rivals][1:]:
            names.remove(rival)
    return tuple(names)


GUESSING = ("rules", "draft", "drafts", "chained", "patterns", "self", "ensemble")


@st.composite
def _sources(draw: st.DrawFn, entry: str) -> tuple[str, ...]:
    listening = draw(st.sampled_from(["", "early"] + ["forced"] * (entry != "invoke")))
    guessing = draw(st.sampled_from([(name,) for name in GUESSING] + [GUESSING] * 3))
    return (*guessing, *([listening] if listening else ()))


@st.composite
def _node_options(draw: st.DrawFn, form: str, *, alone: bool) -> dict[str, Any]:
    handlings = [*HANDLING] if alone else ["default", "all", "text", "function"]
    wrappers = [None, None, "edit", "short"] + ["raise"] * alone
    options: dict[str, Any] = {
        "handling": draw(st.sampled_from(handlings)),
        "wrapper": draw(st.sampled_from(wrappers)),
    }
    if form == "react":
        return options | {"version": draw(st.sampled_from(["v1", "v2"]))}
    return options | {
        "state": draw(st.sampled_from(["typed", "pydantic", "dataclass"])),
        "messages_key": draw(st.sampled_from(["messages", "chat"])),
        "node": draw(st.sampled_from(["function", "chain"])),
        "retries": draw(st.booleans()),
    }


# --- turns


@st.composite
def _turns(draw: st.DrawFn, agent: AgentSpec) -> TurnSpec:
    size = draw(st.integers(1, 6))
    asked = draw(st.lists(_calls(agent), min_size=size, max_size=size))
    committed = _settled(agent, asked)
    guesses = [guess for call in committed for guess in draw(_guesses(call))]
    guesses += draw(st.lists(_calls(agent), max_size=1))
    if guesses and draw(st.booleans()):
        guesses = draw(st.permutations(guesses))
    recovers = agent.retries or {"fallback", "model_retry"} & {*agent.middleware}
    failing = st.booleans() if recovers else st.sampled_from([False] * 19 + [True])
    if agent.around != "none":
        failing = st.just(False)
    return TurnSpec(
        calls=tuple(committed),
        guesses=tuple(guesses),
        content=draw(st.sampled_from(["", "let me see", "I write to ann@x.org"])),
        generation=draw(st.sampled_from(_GENERATION[agent.clock])),
        failures=int(draw(failing)),
        truncated=not draw(_nearly_always),
    )


@st.composite
def _calls(draw: st.DrawFn, agent: AgentSpec) -> CallSpec:
    kinds = [tool.kind for tool in agent.tools]
    if "todo" in agent.middleware and draw(st.integers(0, 5)) == 5:
        todo = {"content": "look", "status": "pending"}
        return CallSpec(tool="write_todos", args={"todos": [todo]})
    odd = draw(st.integers(0, 24))
    if odd == 24:
        return CallSpec(tool=NOBODY, args={"q": "a"})
    if odd == 23:
        return CallSpec(tool=draw(st.sampled_from(kinds)), args={"n": "x"})
    return CallSpec(tool=draw(st.sampled_from(kinds)), args=draw(_args))


_args = st.builds(
    lambda q, more: {"q": q, **more},
    st.sampled_from(["a", *QUERIES]),
    st.sampled_from([{}, {}, {"n": 1}, {"n": 2}, {"n": "2"}]),
)


@st.composite
def _guesses(draw: st.DrawFn, call: CallSpec) -> list[CallSpec]:
    fate = draw(st.sampled_from(["right"] * 5 + ["twice", "spelt", "wrong", "none"]))
    if fate == "right":
        return [call]
    if fate == "twice":
        return [call, call]
    if fate == "spelt" and call.args.get("n", 1) == 1:
        return [CallSpec(tool=call.tool, args={**call.args, "n": "1"})]
    if fate == "wrong":
        return [CallSpec(tool=call.tool, args=draw(_args))]
    return []


def _settled(agent: AgentSpec, asked: list[CallSpec]) -> list[CallSpec]:
    """Return as many of `asked` as end their turn in an order that timing does not decide."""
    if agent.around != "none":  # two agents that end at once: which of them, timing decides
        asked = [replace(c, args={**c.args, "q": "a"}) if _may_end(c) else c for c in asked]
    alone = next((call for call in asked if _ends_at_once(agent, call)), None)
    if alone is not None:
        return [alone]
    ending = [call for call in asked if _may_end(call)]
    return [call for call in asked if not any(call is other for other in ending[1:])]


def _may_end(call: CallSpec) -> bool:
    kind = KINDS.get(call.tool)
    if kind is None:
        return False
    # No schema refuses a call of this kind without its argument: the body raises.
    return call.args.get("q") in kind.fatal or (call.tool == "loose" and "q" not in call.args)


def _ends_at_once(agent: AgentSpec, call: CallSpec) -> bool:
    if "q" not in call.args and call.tool == "loose":
        return True
    if "q" not in call.args and call.tool in KINDS:
        return agent.form != "create_agent" and agent.handling in _STRICT
    if agent.wrapper == "raise" and call.args.get("q") == "b":
        return agent.handling in {"default", "none"}
    if not _may_end(call):
        return False
    body = next(tool.body for tool in agent.tools if tool.kind == call.tool)
    return agent.clock == "sync" or (body == "sync" and call.tool != "klass")
