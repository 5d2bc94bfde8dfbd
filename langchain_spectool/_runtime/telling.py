"""What the events of a turn say beside what was decided."""

from collections.abc import Sequence

from langchain_spectool._core.budget import Charge
from langchain_spectool._core.guess import Candidate
from langchain_spectool._core.turn import CommittedCall
from langchain_spectool._core.verdicts import GuessVerdict
from langchain_spectool._runtime.shared_economy import Purse


def barred(calls: Sequence[CommittedCall]) -> tuple[str, ...]:
    """Say of each call why no guess can answer it: those after a write may see what it changed."""
    reasons: list[str] = []
    for call in calls:
        if "undeclared" in reasons:
            reasons.append("fenced")
        elif call.contract is None:
            reasons.append("undeclared")
        else:
            reasons.append("" if call.contract.early else "not_early")
    return tuple(reasons)


def weighed(purse: Purse, verdict: GuessVerdict, candidate: Candidate, now_s: float) -> str:
    """Say of a guess that is only scored what it would have been told; nothing stays reserved.

    Empty for all others, and where to ask is to count: of rate limits, and of links of a chain.
    """
    counts = candidate.parent is not None or candidate.contract.calls_per_minute is not None
    if candidate.refusal != "shadow" or counts or verdict not in ("shadow", "duplicate"):
        return ""
    judged = purse.judge(candidate, now_s)
    if judged.reservation is not None:
        purse.economy.settle(judged.reservation, Charge())
    return judged.refusal or "run"
