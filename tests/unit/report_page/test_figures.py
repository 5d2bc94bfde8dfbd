"""Figures hold the numbers they should, in bounded size."""

import json

import pytest
from page_data import cell, closing, paper, turn

from langchain_spectool._core.events import Event
from langchain_spectool.bench.report_page.curves import (
    log_saved_by_latency,
    seconds_by_tool,
    speedup_by_alpha,
)
from langchain_spectool.bench.report_page.figures import Figure, plotted
from langchain_spectool.bench.report_page.log_turns import turns_of
from langchain_spectool.bench.report_page.paper_figures import (
    arms_by_latency,
    by_samples,
    calibrated,
    saved_by_agents,
    saved_by_latency,
)
from langchain_spectool.bench.report_page.paper_results import PaperResults, read_paper
from langchain_spectool.bench.report_page.scorecard import facts_of
from langchain_spectool.bench.report_page.timeline_figure import timeline
from langchain_spectool.bench.report_page.timeline_layout import MOST_BARS, MOST_TURNS


def _timeline(events: list[Event]) -> Figure:
    figure = timeline(turns_of(events))
    assert figure is not None
    return figure


def _gone(start_s: float, spent_s: float) -> Event:
    """Return an early run of the first turn that answered nothing."""
    return Event(
        kind="discarded",
        at_s=3.0,
        turn=1,
        verdict="unclaimed",
        tool=f"{start_s}",
        started_s=start_s,
        spent_s=spent_s,
    )


def _trace(figure: Figure | None, name: str) -> dict[str, list[float]]:
    assert figure is not None
    (found,) = [trace for trace in figure.traces if trace["name"] == name]
    return dict(found)


def _results() -> PaperResults:
    return read_paper(paper())


class TestCurves:
    """Equation (2), and where a log is on it."""

    def test_speedup(self) -> None:
        """With T = G and g = 0, right guesses double the speed; wrong ones change nothing."""
        best = _trace(speedup_by_alpha(), "g/G = 0")
        assert (best["y"][0], best["y"][-1]) == (1.0, 2.0)
        assert _trace(speedup_by_alpha(), "g/G = 0.75")["y"][-1] == pytest.approx(
            2 / 1.75, abs=1e-4
        )

    def test_the_log_is_a_point(self) -> None:
        """A hit and a miss: 0.75 of 6 s saved, at a tool latency of 2 s."""
        point = _trace(log_saved_by_latency(facts_of([*turn(1), *turn(2, hit=False)])), "this log")
        assert (point["x"], point["y"]) == ([2.0], [12.5])

    def test_the_ceiling_is_of_calls_that_may_run_early(self) -> None:
        """With a call of an undeclared tool for each that was hit, no alpha is above a half."""
        committed = Event(
            kind="turn_committed",
            at_s=301.0,
            turn=3,
            started_s=300.0,
            position=1,
            tools=("mail",),
            barred=("undeclared",),
        )
        ended = Event(kind="call_ended", at_s=303.0, turn=3, position=0, tool="mail", spent_s=2.0)
        figure = log_saved_by_latency(facts_of([*turn(1), committed, ended]))
        now = _trace(figure, "model, at this log's hit rate")
        best = _trace(figure, "model, if all that may were guessed")
        assert best["y"] == now["y"]
        assert max(best["y"]) > 0

    def test_the_paper_is_there(self) -> None:
        """Its 8B column is drawn to the digit."""
        figure = log_saved_by_latency(facts_of(turn(1)))
        assert _trace(figure, "paper, draft of 8B")["y"] == [6, 12, 16, 19, 21]

    def test_nothing_to_draw(self) -> None:
        """Without planned turns there is no figure."""
        facts = facts_of(closing(1))
        assert log_saved_by_latency(facts) is None
        assert seconds_by_tool(facts) is None

    def test_seconds_by_tool(self) -> None:
        """Hidden and wasted seconds stand side by side."""
        figure = seconds_by_tool(facts_of([*turn(1), *turn(2, "grep", hit=False)]))
        assert _trace(figure, "hidden")["x"] == [0.75, 0.0]
        assert _trace(figure, "wasted")["x"] == [0.0, 0.75]


class TestTimeline:
    """Turns one after another, in lanes."""

    def test_spans(self) -> None:
        """The second turn begins where the first was over: the clock says 97 s later."""
        figure = _timeline([*turn(1), *turn(2, hit=False)])
        model = _trace(figure, "model writes")
        assert (model["base"], model["x"]) == ([0.0, 2.25], [1.0, 1.0])
        assert _trace(figure, "early run, claimed")["base"] == [0.25]
        assert _trace(figure, "early run, wasted")["base"] == [2.5]
        assert _trace(figure, "call runs after the answer")["x"] == [2.0]
        assert _trace(figure, "claim")["x"] == [1.0]

    def test_short_pauses_are_kept(self) -> None:
        """A pause no longer than the longest turn is a part of the run."""
        events = [
            Event(
                kind="turn_committed", at_s=start_s + 4, turn=number, started_s=start_s, position=0
            )
            for number, start_s in ((1, 0.0), (2, 5.0), (3, 50.0))
        ]
        assert _trace(_timeline(events), "model writes")["base"] == [0.0, 5.0, 9.0]

    def test_lanes(self) -> None:
        """What overlaps is drawn in lanes of its own."""
        gone = [_gone(start_s, 1.0) for start_s in (0.0, 0.5, 1.0)]
        lanes = _trace(_timeline(gone), "early run, wasted")["y"]
        assert lanes == ["early 1", "early 2", "early 1"]
        axis = _timeline(gone).layout["yaxis"]
        assert [*zip(axis["tickvals"], axis["ticktext"], strict=True)] == [
            ("early 1", "early"),
            ("early 2", ""),
        ]

    @pytest.mark.parametrize(("spent_s", "lane"), [(1e-5, "early 1"), (0.1, "early 2")])
    def test_no_lane_looks_empty(self, spent_s: float, lane: str) -> None:
        """An early run that was dropped at once cannot be seen, and has no lane of its own."""
        figure = _timeline([*turn(1), _gone(100.5, spent_s), _gone(100.7, spent_s)])
        assert _trace(figure, "early run, claimed")["y"] == ["early 1"]
        assert _trace(figure, "early run, wasted")["y"] == [lane] * 2
        assert ("early 2" in figure.layout["yaxis"]["tickvals"]) == (lane == "early 2")

    def test_a_claim_of_what_is_left_out_is_left_out(self) -> None:
        """Where a log is cut off, no claim stands on a lane without bars."""
        crowd = [_gone(100.0 + place / MOST_BARS, 1.0) for place in range(MOST_BARS)]
        assert _trace(_timeline(turn(1)), "claim")["y"] == ["early 1"]
        assert _trace(_timeline([*crowd, *turn(1)]), "claim")["y"] == []

    def test_nothing_to_draw(self) -> None:
        """A log of errors has no timeline."""
        assert timeline(turns_of([Event(kind="error", at_s=1.0, turn=1)])) is None
        assert timeline([]) is None

    def test_long_logs(self) -> None:
        """A log of thousands of turns is drawn in part, and the sentence says so."""
        figure = _timeline([event for number in range(1, 3001) for event in turn(number)])
        assert f"first {MOST_TURNS} of 3,000" in figure.summary
        assert len(_trace(figure, "model writes")["x"]) == MOST_TURNS
        assert len(json.dumps(figure.traces)) < 500_000

    def test_crowded_turns(self) -> None:
        """One turn with thousands of early runs does not fill the page."""
        gone = Event(kind="discarded", at_s=3.0, turn=1, tool="a", started_s=0.0, spent_s=1.0)
        assert len(_timeline([gone] * 5_000).table.rows) == MOST_BARS


class TestPaper:
    """The paper's experiment in figures."""

    def test_the_package_beside_the_model(self) -> None:
        """Both are drawn, with the interval of what was measured."""
        figure = saved_by_latency(_results())
        measured = _trace(figure, "package, client_side")
        assert measured["y"] == [0.0, 5.0, 10.0, 20.0]
        assert _trace(figure, "turn-by-turn model")["y"] == [0.1, 5.1, 10.1, 20.1]
        assert figure is not None
        assert "within 0.10 points" in figure.summary

    def test_arms(self) -> None:
        """All but plain are drawn; the oracle is no way to guess."""
        figure = arms_by_latency(_results())
        assert figure is not None
        assert [trace["name"] for trace in figure.traces] == [
            "client_side",
            "early_dispatch",
            "chain",
            "oracle",
        ]
        assert figure.summary.startswith("Over all latencies early_dispatch saves most")

    def test_an_arm_at_one_latency_is_no_rival(self) -> None:
        """A peer that was measured where tools are slow does not win the mean."""
        found = paper()
        found["slice"]["rows"].append(cell("peer", 2.0, 99.0))
        figure = arms_by_latency(read_paper(found))
        assert figure is not None
        assert "early_dispatch saves most" in figure.summary
        assert figure.traces[-1]["name"] == "peer"

    def test_samples(self) -> None:
        """Fewest and most agents, by accuracy."""
        figure = by_samples(_results())
        assert figure is not None
        assert len(figure.traces) == 4
        assert "32\u00a0agents save -1.0 %" in figure.summary

    def test_saturation_is_left_out(self) -> None:
        """A saving above saturation is not drawn."""
        figure = saved_by_agents(_results())
        assert _trace(figure, "real time")["x"] == [1]

    def test_parts_that_were_not_measured(self) -> None:
        """No part, no figure."""
        nothing = PaperResults()
        builders = (saved_by_latency, arms_by_latency, by_samples, saved_by_agents, calibrated)
        assert [build(nothing) for build in builders] == [None] * 5


def test_plotted() -> None:
    """What plotly would read as markup or as a formula is none."""
    assert plotted("<b>$x$</b> & 'y'") == "&lt;b&gt;&#36;x&#36;&lt;/b&gt; &amp; 'y'"
