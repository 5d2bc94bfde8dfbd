"""What the bars of the paper's experiment look at."""

from typing import Any

import pytest

from langchain_spectool.bench.paper.bars import PaperBar, bars_of


def found(**changes: Any) -> dict[str, Any]:
    """Return figures that keep every bar."""
    row = {"arm": "client_side", "gap_low": -0.1, "gap_high": 0.2}
    other = {"arm": "oracle", "gap_low": -9.0, "gap_high": 9.0}
    real = {"clock": "real", "saturated": False, "saved": 45.0, "low": 44.0, "high": 46.0}
    return {
        "slice": {
            "rows": [row, other],
            "column_rows": [row | {"gap_low": -0.3}],
            "gains": [{"low": 0.4}, {"low": 0.1}],
        },
        "calibration": {"points": [{"paper": 12.0, "low": 11.0, "high": 13.5}]},
        "scale": {
            "rows": [real | {"agents": 1}, real | {"agents": 1000, "low": 43.0}],
            "memory": {"kb_per_turn": 12.0},
        },
        **changes,
    }


def test_a_bar_looks_at_the_end_of_the_interval_that_is_farther() -> None:
    """Of client-side cells only; for a gain it is the lower one."""
    assert {bar.name: bar.value for bar in bars_of(found())} == {
        "max_gap_to_turn_model_points": 0.3,
        "paper_column_gap_points": 1.5,
        "gain_over_client_side_points": 0.1,
        "saving_1000_vs_1_points": 2.0,
        "memory_kb_per_turn": 12.0,
    }
    assert all(bar.met for bar in bars_of(found()))


@pytest.mark.parametrize(("sense", "met"), [("<=", True), (">", False)])
def test_a_limit_itself_is_within(sense: Any, met: bool) -> None:
    """At most lets it pass, more than does not."""
    bar = PaperBar(name="x", value=2.0, limit=2.0, sense=sense)
    assert bar.met == met == bar.as_json()["met"]


def test_parts_that_were_not_measured_have_no_bars() -> None:
    """A bar is never taken from nothing."""
    assert not bars_of(found(slice=None, scale=None))


def test_a_saturated_machine_has_no_say_about_time() -> None:
    """Its throughput and processor time are in its row."""
    scale = found()["scale"]
    scale["rows"][-1]["saturated"] = True
    names = [bar.name for bar in bars_of(found(scale=scale))]
    assert names[-1] == "memory_kb_per_turn"
    assert not any(name.startswith("saving_") for name in names)
