"""What a turn costs when model and tools take no time.

A run is one `ainvoke`: the model asks for 1 or 8 tool calls, they run, the model closes. Its time
is the wall time less what the model spent writing, which only the arms of hits let it do: a draft
model guesses and the early runs happen meanwhile, as they would beside any real model, and the
committed calls then find them landed. What remains is the framework's work and ours, the start of
the draft model and the plan included.
"""

import asyncio
from collections.abc import Sequence

from langchain_spectool.bench.agents import Form, build
from langchain_spectool.bench.measure import Arm, Sample, comparable, interleave
from langchain_spectool.bench.paced import PacedModel, look_ups
from langchain_spectool.bench.report import Bar, options, progress, publish
from langchain_spectool.graph.speculation import Source
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.speculators.early_dispatch import EarlyDispatch

FEWEST = 200
MANY = 8
"""Calls in a turn with many."""
WRITING_S = 0.03
"""Seconds the model writes in the arms of hits: several times what the early runs need."""
DRAFT_S = 0.005
"""Seconds the draft model takes there: by then the main model has been asked."""
_FORMS: tuple[Form, ...] = ("plain", "noop", "ours", "graph_plain", "graph_ours")


def main(argv: Sequence[str]) -> int:
    """Measure, print, and return the exit status."""
    given = options(
        argv,
        name="overhead",
        about="Measures what a turn costs beyond stock LangGraph.",
        repeats=300,
        fewest=FEWEST,
    )
    arms = overhead_arms()
    with progress("overhead", len(arms) * (given.repeats + 1)) as advance:
        interleave(arms, given.repeats, advance=advance)
    return publish(
        overhead_bars(arms), arms, name="overhead", repeats=given.repeats, as_json=given.json
    )


def overhead_arms() -> list[Arm]:
    """Return every form with 1 and with many calls, without guesses and with all hits."""
    arms = [_arm(form, count, writing_s=0.0) for form in _FORMS for count in (1, MANY)]
    hits: tuple[Form, ...] = ("noop", "ours")
    return arms + [_arm(form, count, writing_s=WRITING_S) for form in hits for count in (1, MANY)]


def overhead_bars(arms: Sequence[Arm]) -> list[Bar]:
    """Compare the arms of `overhead_arms`."""
    p10_ms = {arm.name: 1000 * arm.p10_s for arm in arms}

    def extra_ms(form: str) -> float:
        return (p10_ms[f"{form}_{MANY}"] - p10_ms[f"{form}_1"]) / (MANY - 1)

    values = {
        "create_agent_idle_vs_noop": (p10_ms["ours_1"] / p10_ms["noop_1"], 1.12),
        "stategraph_idle_vs_plain": (p10_ms["graph_ours_1"] / p10_ms["graph_plain_1"], 1.20),
        "extra_call_ms": (extra_ms("ours") - extra_ms("noop"), 0.1),
        "extra_hit_ms": (extra_ms("ours_hit") - extra_ms("noop_hit"), 0.1),
    }
    return [
        Bar(name=name, value=round(value, 4), limit=limit)
        for name, (value, limit) in values.items()
    ]


def _arm(form: Form, count: int, *, writing_s: float) -> Arm:
    answer = look_ups(*[0.0] * count)
    model = PacedModel(answer=answer, generation_s=writing_s)
    hits = writing_s > 0 and form == "ours"
    draft = DraftModel(PacedModel(answer=answer, generation_s=DRAFT_S))
    # Without Patterns, which would learn such an agent by heart and leave no turn without guesses.
    speculators: list[Source] = [draft] if hits else [EarlyDispatch()]
    agent, speculation = build(form, model, speculators)

    async def once() -> Sample:
        clock = asyncio.get_running_loop().time
        began_s, wrote_s = clock(), model.written_s
        state = await agent.ainvoke({"messages": [("user", "look it up")]})
        seconds = clock() - began_s - (model.written_s - wrote_s)
        return Sample(seconds=seconds, answers=[comparable(state["messages"])])

    return Arm(
        name=f"{form}{'_hit' if writing_s else ''}_{count}",
        task=f"{count} calls",
        run=lambda runner: runner.run(once()),
        speculation=speculation,
        hits=count if hits else 0,
    )
