"""What the measured counts have to keep, and whether an arm says other things than it may."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any, Final

from langchain_spectool.bench.engine.agents import AGAIN, ARMS, ROUND_TRIP
from langchain_spectool.bench.engine.cells import Results, ratios
from langchain_spectool.bench.paper.bars import PaperBar

ENGINE: Final = "o3"
SIGNIFICANT: Final = 0.05
PREFILL: Final = 0.9
STEPS: Final = 1.0
PRESSURE_PREFILL: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """How often an arm said other things than the round trip, beside the round trip itself."""

    arm: str
    tasks: int
    divergent: int
    again_divergent: int
    """Of the same tasks, those that the second round trip answered otherwise than the first."""
    alone: int
    """Tasks that only this arm answered otherwise."""
    again_alone: int
    """Tasks that only the second round trip did."""
    p: float
    """Chance of so many or more if the arm diverges no more than the round trip does."""


def exceeds(ours: int, theirs: int, tasks: int) -> float:
    """Return the one-sided p value of Fisher's exact test, both of `tasks` tasks."""
    both = ours + theirs
    ways = (comb(tasks, k) * comb(tasks, both - k) for k in range(ours, min(both, tasks) + 1))
    return sum(ways) / comb(2 * tasks, both)


def exceeds_paired(ours: int, theirs: int) -> float:
    """Return the one-sided p value of the exact sign test (McNemar's).

    Both arms answer the same tasks and are compared with the same round trip, so a task that is
    odd there is odd in both and says nothing: only those count that one of the two alone differs
    in, `ours` and `theirs`.
    """
    both = ours + theirs
    return sum(comb(both, k) for k in range(ours, both + 1)) / 2**both


def divergences(results: Sequence[Results]) -> list[Divergence]:
    """Compare each arm but the two round trips, where nothing is drafted."""
    judged = [each for each in results if each.cell.server != "drafts"]
    again = _flags(judged, AGAIN.name)
    return [
        _divergence(arm.name, _flags(judged, arm.name), again)
        for arm in ARMS
        if arm not in {ROUND_TRIP, AGAIN}
    ]


def _flags(results: Sequence[Results], arm: str) -> list[bool]:
    return [differs for each in results for differs in each.differs(arm)]


def _divergence(arm: str, ours: Sequence[bool], again: Sequence[bool]) -> Divergence:
    pairs = list(zip(ours, again, strict=True))
    alone = sum(mine and not other for mine, other in pairs)
    again_alone = sum(other and not mine for mine, other in pairs)
    return Divergence(
        arm=arm,
        tasks=len(pairs),
        divergent=sum(ours),
        again_divergent=sum(again),
        alone=alone,
        again_alone=again_alone,
        p=round(exceeds_paired(alone, again_alone), 4),
    )


def bars_of(results: Sequence[Results]) -> list[PaperBar]:
    """Return the bars of what was measured."""
    return [*_counts(results), *_ratios(results)]


def _counts(results: Sequence[Results]) -> Iterator[PaperBar]:
    doubles = sum(played.doubles for each in results for played in each.arms.values())
    over = sum(each.p < SIGNIFICANT for each in divergences(results))
    yield PaperBar(name="double_executions", value=doubles, limit=0)
    yield PaperBar(name="divergence_over_aa", value=over, limit=0)


def _ratios(results: Sequence[Results]) -> Iterator[PaperBar]:
    roomy = [each for each in results if each.cell.server == "roomy"]
    tight = [each for each in results if each.cell.server == "pressure"]
    if roomy:
        found = ratios(roomy, ENGINE)
        yield PaperBar(
            name="o3_prefill_tokens_vs_round_trip", value=found["prefill"], limit=PREFILL
        )
        yield PaperBar(name="o3_steps_vs_round_trip", value=found["steps"], limit=STEPS)
    if tight:
        value = ratios(tight, ENGINE)["prefill"]
        yield PaperBar(
            name="kv_pressure_prefill_vs_round_trip", value=value, limit=PRESSURE_PREFILL
        )


def as_json(results: Sequence[Results]) -> dict[str, Any]:
    """Return bars and divergences for JSON."""
    return {
        "divergence": [asdict(each) for each in divergences(results)],
        "bars": [bar.as_json() for bar in bars_of(results)],
    }
