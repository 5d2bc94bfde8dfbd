"""What a server shows."""

import pytest

from vllm_spectool._core.counters import COUNTERS, RESOLVED, TURNS, Tally
from vllm_spectool._core.outcomes import DECLINES, OUTCOMES


def test_every_outcome_has_a_counter() -> None:
    """All of them are there from the start, and no other can be counted."""
    tally = Tally()
    for outcome in OUTCOMES:
        assert f'vllm:spectool_turns_total{{outcome="{outcome}"}} 0\n' in tally.exposition({})
        tally.add(TURNS, outcome)
    assert set(DECLINES) < set(OUTCOMES)
    with pytest.raises(ValueError, match="has no value 'mine'"):
        tally.add(TURNS, "mine")
    with pytest.raises(ValueError, match="has no value ''"):
        tally.add(TURNS)


def test_a_snapshot_shows_what_was_counted() -> None:
    """And nothing else."""
    tally = Tally()
    tally.add(TURNS, "seed", by=2)
    tally.add(RESOLVED)
    assert tally.snapshot() == {"turns.seed": 2, "resolved_calls": 1}
    assert (tally.of(TURNS, "seed"), tally.of(TURNS, "n")) == (2, 0)


def test_the_text_is_prometheus_own() -> None:
    """One help and one type for each name, and a line for each number."""
    lines = Tally().exposition({"held_entries": 3}).splitlines()
    assert lines[-2:] == ["# TYPE vllm:spectool_held_entries gauge", "vllm:spectool_held_entries 3"]
    helps = [line.split()[2] for line in lines if line.startswith("# HELP")]
    assert helps == [f"vllm:spectool_{each.name}_total" for each in COUNTERS]
