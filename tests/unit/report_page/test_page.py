"""The page as a whole: what it is made of, and what is said when it cannot be made."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_data import HOSTILE, cell, closing, hostile_log, paper, shadow_turn, turn

from langchain_spectool._core.events import Event
from langchain_spectool.bench.report_page import main, render, write
from langchain_spectool.bench.report_page import page as page_module
from langchain_spectool.bench.report_page.paper_part import shortfalls
from langchain_spectool.bench.report_page.paper_results import read_paper
from langchain_spectool.errors import SpectoolError
from langchain_spectool.telemetry.event_log import EventLog, line_of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Write the log of a turn."""
    path = tmp_path / "events.jsonl"
    with EventLog(path) as events:
        for event in turn(1):
            events.on_event(event)
    return path


def _own(page: str) -> str:
    """Return a page without the library's script, for looking at."""
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


class TestRender:
    """What a page holds."""

    def test_a_log(self) -> None:
        """Headline, timeline, scorecard, and where it does not pay."""
        page = _own(render(None, turn(1)))
        assert "25.0\u00a0% of the time saved" in page
        assert 'class="banner"' not in page
        for part in ("timeline-part", "log-gains", "scorecard", "log-shortfalls", "model"):
            assert f'<section id="{part}"' in page
        assert '<section id="paper"' not in page

    def test_the_paper(self) -> None:
        """Headline with its set-up, bars, arms, set-up."""
        page = _own(render(paper(), None))
        assert "<title>What running tools early saved</title>" in page
        assert "11.6 % of the time saved" in page
        assert "all arms share, and the figures below are of, has 10.0 %" in page
        assert "accuracy 0.8, tools of 1 s on average" in page
        assert "Made up, for tests." in page
        assert "policy: benefit" in page
        assert ">0, 0.5, 1, 2</td>" in page
        assert "<td>3.11.9</td>" in page  # no number among texts is set to the right
        assert "Time saved of so many agents, arriving one after another" in page
        assert "(most at once: 1)" in page
        assert '<th scope="col" class="number">most at once</th>' in page

    def test_parts_of_the_paper_that_were_not_measured(self) -> None:
        """A run of `--only grid` has a page too."""
        found: dict[str, Any] = {**paper(), "slice": None, "calibration": None, "scale": None}
        page = _own(render(found, None))
        assert "no time measured" in page
        assert 'id="plot-samples"' in page

    def test_a_shadow_log(self) -> None:
        """A banner says that nothing ran early; the headline is what would have been saved."""
        page = _own(render(None, [*shadow_turn(1), *shadow_turn(2)]))
        assert re.search(r'class="banner">Shadow mode: nothing ran early\.', page)
        assert "25.0\u00a0% of the time would have been saved" in page
        assert "95 % interval 25.0\u00a0% to 25.0\u00a0%, from 2 resampled turns" in page
        assert "<title>What running tools early would save</title>" in page
        assert "What early runs saved and wasted" not in page
        assert "acceptance" not in page
        assert "At most that: the log does not say which guesses" in page

    @pytest.mark.parametrize(("weighed", "left"), [("run", "25.0"), ("warming_up", "0.0")])
    def test_guesses_that_would_be_held_back(self, weighed: str, left: str) -> None:
        """The banner says what is left of the promise without them."""
        told = [
            replace(event, weighed=weighed, key_hash="a") if event.kind == "guess" else event
            for event in shadow_turn(1)
        ]
        page = _own(render(None, told))
        assert f"were speculation on: {left}\u00a0%." in page

    def test_a_log_of_both_modes(self) -> None:
        """The headline is of the live turns; the banner promises for the others."""
        page = _own(render(None, [*shadow_turn(1, hit=False), *turn(2), *turn(3)]))
        assert "25.0\u00a0% of the time saved" in page
        assert "In shadow mode, where nothing runs early: 1\u00a0turn of 3." in page
        assert "0.0\u00a0% of the time would have been saved" in page

    def test_tokens_that_nobody_reported(self) -> None:
        """A draft model that reports no usage has not used none."""
        usage = Event(kind="usage", at_s=100.5, turn=1, source="draft")
        assert "<dd>not reported</dd>" in _own(render(None, [*turn(1), usage]))
        page = _own(render(None, [*turn(1), usage, replace(usage, usage=(7, 2))]))
        assert "<dd>7 in, 2 out</dd>" in page

    def test_a_shadow_log_that_cannot_be_fitted(self) -> None:
        """Without a call's time nothing is promised, and the page says why."""
        told = [event for event in shadow_turn(1) if event.kind != "call_ended"]
        page = _own(render(None, told))
        assert ">nothing ran early</p>" in page
        assert "T cannot be fitted" in page

    def test_nothing_planned(self) -> None:
        """A log in which nothing was answered early says so."""
        page = _own(render(None, closing(1)))
        assert "no time saved" in page
        assert "The turn-by-turn model cannot be fitted" in page

    def test_no_text_escapes(self) -> None:
        """Hostile names are in the page, and none of them as markup; `detail` is not in it."""
        page = _own(render(paper(), hostile_log()))
        assert not [name for name in HOSTILE if "<" in name and name in page]
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page

    def test_hostile_results(self) -> None:
        """The same for the results of a benchmark that somebody else ran."""
        found = paper()
        found["slice"]["rows"] += [cell(name, 1.0, 5.0) for name in HOSTILE]
        found["settings"] = dict.fromkeys(HOSTILE, HOSTILE[0])
        attacks = [{**line_of(event), "run": HOSTILE[2]} for event in hostile_log()]
        found["sample"]["arms"] = dict.fromkeys(HOSTILE, attacks)
        found["note"] = found["calibration"]["label"] = found["bars"][0]["name"] = HOSTILE[1]
        page = _own(render(found, None))
        assert not [name for name in HOSTILE if "<" in name and name in page]

    def test_the_policy_names_each_script(self) -> None:
        """Two scripts may run, told by their hash; nothing may be asked for."""
        page = render(None, turn(1))
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
        assert policy is not None
        assert policy[1].count("sha256-") == 2
        assert policy[1].startswith("default-src &#39;none&#39;")
        assert page.count("<script>") == 2

    def test_it_stays_small(self) -> None:
        """However long a log is, and whatever it is made of, the page stays under 6 MB."""
        names = [f"{'<' * 78}{number}" for number in range(500)]
        told = [event for number, name in enumerate(names, 1) for event in turn(number, name, name)]
        many = [replace(event, turn=1) for event in told]
        assert max(len(render(paper(), log).encode()) for log in (told, many)) < 6_000_000

    def test_nothing_to_show(self) -> None:
        """An empty log is refused."""
        with pytest.raises(SpectoolError, match="nothing to show"):
            render(None, [])

    def test_a_missing_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who lacks plotly is told what to install."""

        def missing(name: str) -> Any:
            raise ModuleNotFoundError(name)

        monkeypatch.setattr(page_module, "import_module", missing)
        with pytest.raises(SpectoolError, match=r"needs jinja2: pip install .*\[report\]"):
            render(None, turn(1))


class TestResults:
    """What is accepted as results of the paper's experiment."""

    def test_something_else(self) -> None:
        """What is no result is refused with its place."""
        found = paper()
        found["slice"]["rows"][0]["saved"] = "much"
        with pytest.raises(SpectoolError, match=r"slice\.rows\.0\.saved"):
            read_paper(found)

    def test_a_sample_of_no_events(self) -> None:
        """The events of the sample are checked as those of a log are."""
        found = paper()
        found["sample"]["arms"]["chain"] = [{"kind": "claim", "at_s": float("nan")}]
        with pytest.raises(SpectoolError, match=r"`sample`: .*not finite"):
            read_paper(found)

    def test_not_even_an_object(self) -> None:
        """A list is refused too."""
        with pytest.raises(SpectoolError, match="spectool bench paper"):
            read_paper([])  # type: ignore[arg-type]

    def test_shortfalls(self) -> None:
        """Missed bars, no gain, contention, void and saturated cells are told."""
        said = "\n".join(shortfalls(read_paper(paper()))).replace("\u00a0", " ")
        assert "Bar missed: paper_gap is 2.2, it must be <= 2." in said
        assert "memory" not in said
        assert "client_side saves nothing that could be told from 0 with tools of 0 s." in said
        assert "chain gains 0.20 points" in said
        assert "early_dispatch gains" not in said
        assert "4 of 8 cells of the grid save 2 points less" in said
        assert "4 of 8 cells of the grid lose time" in said
        assert "1 of 1 real-time cells are void" in said
        assert "saturated with 1,000 agents" in said

    def test_plain_that_took_too_much_of_a_core_is_told(self) -> None:
        """Arrivals are staggered to leave plain 30 % of a core; a run that missed it says so."""
        found = paper()
        for share, told in ((0.3, False), (0.324, True)):
            found["scale"]["rows"][-1]["plain_cpu_share"] = share
            said = "\n".join(shortfalls(read_paper(found))).replace("\u00a0", " ")
            assert ("plain took 32.4 % of a core" in said) is told


class TestMain:
    """`spectool report`."""

    def test_a_page_is_written(
        self, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The page is written, and its size and what it tells of are printed."""
        results, out = tmp_path / "paper.json", tmp_path / "report.html"
        results.write_text(json.dumps(paper()))
        assert main([str(results), str(log), "-o", str(out)]) == 0
        assert "The paper&#39;s experiment" in out.read_text(encoding="utf-8")
        assert f"{out}: 6 events, 1 turns, 0 runs, 4." in capsys.readouterr().out

    def test_results_alone(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """What `spectool bench paper --json` printed makes a page alone, timeline and all."""
        results, out = tmp_path / "paper.json", tmp_path / "report.html"
        results.write_text(json.dumps(paper()))
        assert main([str(results), "-o", str(out)]) == 0
        page = out.read_text(encoding="utf-8")
        assert 'id="plot-timeline-1"' in page
        assert "This event log" not in page
        assert capsys.readouterr().out.startswith(f"{out}: 4.")

    def test_a_log_of_one_line_is_no_result(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """One event is one piece of JSON, and is read as a log all the same."""
        path, out = tmp_path / "one.jsonl", tmp_path / "report.html"
        with EventLog(path) as events:
            events.on_event(closing(1)[0])
        assert main([str(path), "-o", str(out)]) == 0
        assert "1 events, 1 turns" in capsys.readouterr().out

    def test_two_of_a_kind(self, log: Path, tmp_path: Path) -> None:
        """Two logs make no page: their turns would be mixed up."""
        with pytest.raises(SpectoolError, match="one event log and one file of results"):
            main([str(log), str(log), "-o", str(tmp_path / "report.html")])

    def test_lines_that_are_skipped(
        self, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The first few are named, then their number."""
        with log.open("a") as file:
            file.write("no event\n" * 7)
        assert main([str(log), "-o", str(tmp_path / "report.html")]) == 0
        complaints = capsys.readouterr().err.splitlines()
        assert len(complaints) == 6
        assert complaints[-1].endswith("skipped 7 lines in all")

    def test_an_empty_log(self, tmp_path: Path) -> None:
        """A log without events is refused."""
        empty = tmp_path / "empty.jsonl"
        empty.touch()
        with pytest.raises(SpectoolError, match="holds no events"):
            main([str(empty), "-o", str(tmp_path / "report.html")])

    def test_wrong_results(self, log: Path, tmp_path: Path) -> None:
        """What is not there, of another benchmark, or no JSON and no log, is refused."""
        argv = ["-o", str(tmp_path / "report.html")]
        with pytest.raises(SpectoolError, match="cannot be read"):
            main([str(log), str(tmp_path / "none.json"), *argv])
        (tmp_path / "other.json").write_text('{"benchmark": "turns", "bars": []}')
        with pytest.raises(SpectoolError, match=r"`spectool bench paper`: `benchmark`"):
            main([str(log), str(tmp_path / "other.json"), *argv])
        (tmp_path / "bad.json").write_text("[" * 100_000)
        with pytest.raises(SpectoolError, match="holds no events"):
            main([str(tmp_path / "bad.json"), *argv])

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        """A folder is no file."""
        with pytest.raises(SpectoolError, match="cannot be written"):
            write("page", str(tmp_path))

    def test_a_source_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The page is written where the package is not installed, too."""

        def unknown(_: str) -> str:
            raise page_module.PackageNotFoundError

        monkeypatch.setattr(page_module, "version", unknown)
        assert "from a source folder" in render(None, turn(1))
