"""The demo: both examples, off and on, told as a timeline and as figures."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from rich.console import Console

from langchain_spectool import SpeculationMiddleware, speculatable
from langchain_spectool.bench import demo
from langchain_spectool.bench.drawing import drawn
from langchain_spectool.bench.timeline import CallTimes, Timeline, TurnTimes
from langchain_spectool.errors import SpectoolError
from langchain_spectool.testing import ScriptedModel, calls, text

FAST = 40.0


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the module path as it was."""
    monkeypatch.setattr(sys, "path", [*sys.path])


class TestShow:
    """`spectool demo` as a whole, with its delays divided."""

    def test_figures(self, capsys: pytest.CaptureFixture[str]) -> None:
        """`--json` prints the named figures of both examples, and only those on stdout."""
        assert demo.show(speed=FAST, as_json=True) == 0
        printed = capsys.readouterr()
        examples = json.loads(printed.out)["examples"]
        assert [each["name"] for each in examples] == ["swe_agent", "search_agent"]
        for each in examples:
            assert list(each) == [
                "name",
                "plain_s",
                "speculative_s",
                "saved_pct",
                "hits",
                "misses",
                "same_messages",
            ]
            assert each["same_messages"] is True
            assert each["hits"] > 0
        assert "running swe_agent, off\nrunning swe_agent, on\n" in printed.err

    def test_timelines(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without `--json` every turn is drawn, and what is simulated is said."""
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("SPECTOOL_MODE", "on")
        assert demo.show(speed=FAST) == 0
        out = capsys.readouterr().out
        said = " ".join(out.split())
        assert out.count("speculation off") == out.count("speculation on") == 2
        assert said.count("Same messages off and on: yes.") == 2
        assert "main one at 60 tokens/s and the draft at 300" in said
        assert "predict no others" in said
        assert f"divided by {FAST:g}" in said
        assert "SPECTOOL_MODE" not in said
        assert max(map(len, out.splitlines())) <= 80

    def test_speculation_that_is_switched_off_is_pointed_out(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """With `SPECTOOL_MODE=off` there can be no hits, and the output says why."""
        monkeypatch.setenv("SPECTOOL_MODE", "off")
        monkeypatch.setattr(demo, "compare", lambda **_: iter([]))
        demo._example("swe_agent")
        assert demo.show() == 0
        assert "SPECTOOL_MODE=off is set: unset it" in " ".join(capsys.readouterr().out.split())

    def test_different_messages_end_with_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """If the arms say different things, the exit code is 1 and the output says NO."""
        plain = demo.Arm(wall_s=2.0, turns=[], messages=["a"], reached=True)
        ours = demo.Arm(wall_s=1.0, turns=[], messages=["b"], reached=True)
        pair = demo.Comparison(
            name="swe_agent", about="", goal="it works", plain=plain, speculative=ours
        )
        monkeypatch.setattr(demo, "compare", lambda **_: iter([pair]))
        assert demo.show(as_json=True) == 1
        assert json.loads(capsys.readouterr().out)["examples"][0]["same_messages"] is False
        demo._example("swe_agent")
        assert demo.show() == 1
        assert "Same messages off and on: NO." in capsys.readouterr().out

    def test_an_arm_that_fails_its_task_ends_with_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Equal messages are not enough: both arms must do what they were asked to."""
        arms = [
            demo.Arm(wall_s=1.0, turns=[], messages=[], reached=reached)
            for reached in (True, False)
        ]
        pair = demo.Comparison(name="", about="", goal="x", plain=arms[0], speculative=arms[1])
        monkeypatch.setattr(demo, "compare", lambda **_: iter([pair]))
        assert demo.show(as_json=True) == 1


class TestMissing:
    """What a demo that cannot run says."""

    def test_no_examples(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Installed from a wheel there are no examples; the message says where they are."""
        monkeypatch.setattr(demo, "EXAMPLES", tmp_path)
        with pytest.raises(SpectoolError, match=r"not with its wheel.*`make demo`"):
            demo.show()

    def test_no_library(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """An example whose library is missing names it and the remedy."""
        (tmp_path / "swe_agent.py").write_text("import no_such_module_here")
        monkeypatch.setattr(demo, "EXAMPLES", tmp_path)
        monkeypatch.delitem(sys.modules, "swe_agent", raising=False)
        with pytest.raises(SpectoolError, match="'no_such_module_here': run `make demo`"):
            demo.show()


class TestTimeline:
    """What is recorded of a run."""

    @pytest.mark.real_loop
    @pytest.mark.parametrize("is_async", [True, False], ids=["ainvoke", "invoke"])
    async def test_a_run_with_a_hit_and_a_waste(self, *, is_async: bool) -> None:
        """Calls stand in the order of the answer; early runs lie inside the writing."""

        @speculatable
        @tool
        def look(query: str) -> str:
            """Look it up."""
            return query

        asked = [("look", {"query": "a"}), ("look", {"query": "b"})]
        guessed = [("look", {"query": "a"}), ("look", {"query": "c"})]
        main = ScriptedModel(turns=[calls(*asked), text("done")], generation_s=0.3)
        draft = ScriptedModel(turns=[calls(*guessed), text("done")])
        steps: list[str] = []
        timeline = Timeline(steps.append)
        ours = SpeculationMiddleware(draft=draft, observers=[timeline])
        agent: Any = create_agent(main, [look], middleware=[ours])
        config = {"callbacks": [timeline]}
        if is_async:
            await agent.ainvoke({"messages": "hi"}, config)
        else:
            agent.invoke({"messages": "hi"}, config)
        first, second = timeline.finished()
        assert [(c.tool, c.verdict) for c in first.calls.values()] == [
            ("look", "hit"),
            ("look", "no_guess"),
        ]
        hit, miss = first.calls.values()
        assert first.answered_s is not None
        assert hit.early is not None
        assert hit.early[0] <= hit.early[1] <= first.answered_s  # the draft may be off first
        assert miss.early is None
        assert [tool for tool, _ in first.wasted] == ["look"]
        assert first.answered_s <= first.ended_s <= second.began_s
        assert second.calls == {}
        assert steps == [
            "turn 1: the model writes",
            "turn 1: look",
            "turn 1: look",
            "turn 2: the model writes",
        ]

    async def test_a_tool_that_raises_has_an_end(self) -> None:
        """The time of a failing call is known, too."""

        @tool
        def fail() -> str:
            """Fail."""
            raise ValueError("no")

        main = ScriptedModel(turns=[calls(("fail", {})), text("done")])
        timeline = Timeline(lambda _: None)
        agent: Any = create_agent(main, [fail])
        with pytest.raises(ValueError, match="no"):
            await agent.ainvoke({"messages": "hi"}, {"callbacks": [timeline]})
        (turn,) = timeline.finished()
        (call,) = turn.calls.values()
        assert call.ended_s is not None
        assert call.verdict == ""


def _drawing(plain: list[TurnTimes], speculative: list[TurnTimes], **options: Any) -> list[str]:
    """Draw, and return the lines without the spaces at their ends."""
    file = io.StringIO()
    console = Console(file=file, width=80, **options)
    console.print(drawn(console, plain, speculative))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def _turn(**more: Any) -> TurnTimes:
    return TurnTimes(began_s=100.0, answered_s=101.0, **more)


class TestDrawing:
    """What the recorded times look like: 20 characters are the longest turn."""

    def test_a_hit_beside_a_wait(self) -> None:
        """Off, the tool stands after the writing; on, before its end, and nobody waits."""
        waits = CallTimes(tool="look", began_s=101.0, ended_s=102.0)
        hit = CallTimes(
            tool="look", began_s=101.0, ended_s=101.0, verdict="hit", early=(100.2, 100.8)
        )
        _, model, look, legend = _drawing([_turn(calls={"c": waits})], [_turn(calls={"c": hit})])
        assert model.split() == ["1", "model", "█" * 10, "1.00", "█" * 10, "1.00"]
        assert look.split() == ["look", "▒" * 10, "1.00", "▓" * 6, "0.00", "hit"]
        assert look.index("▒") == model.index("█") + 10
        assert look.index("▓") == model.rindex("█") - 7
        assert "1 char 0.10 s" in legend

    def test_a_join_is_half_early_half_waiting(self) -> None:
        """An early run that the call had to wait for changes its colour at the answer."""
        joined = CallTimes(
            tool="look", began_s=101.0, ended_s=102.0, verdict="joined", early=(100.0, 102.0)
        )
        _, _, look, _ = _drawing([], [_turn(calls={"c": joined})])
        assert look.split() == ["look", "▓" * 10 + "▒" * 10, "1.00", "joined"]

    def test_waste_has_a_row_of_its_own(self) -> None:
        """An early run that answered nothing is drawn below the calls, without seconds."""
        turn = _turn(wasted=[("look", (100.5, 101.0))])
        *_, look, _ = _drawing([_turn()], [turn])
        assert look.split() == ["look", "░" * 10, "wasted"]

    def test_without_unicode(self) -> None:
        """A terminal that shows ASCII only gets ASCII only."""
        file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        console = Console(file=file, width=80)
        console.print(drawn(console, [_turn()], [_turn(wasted=[("look", (100.0, 100.5))])]))
        file.seek(0)
        printed = file.read()
        assert "####" in printed
        assert "...." in printed

    def test_calls_without_a_start_and_turns_without_an_answer(self) -> None:
        """A run that broke off is drawn as far as it came."""
        broken = TurnTimes(began_s=100.0)
        _, model, second, look, _ = _drawing(
            [_turn()], [_turn(), TurnTimes(began_s=101.0, calls={"c": CallTimes(tool="look")})]
        )
        assert broken.ended_s == 100.0
        assert model.split()[:2] == ["1", "model"]
        assert second.split() == ["2", "model"]
        assert look.split() == ["look"]

    def test_a_wide_console_is_not_filled(self) -> None:
        """Lines stay readable on very wide terminals."""
        file = io.StringIO()
        console = Console(file=file, width=300)
        console.print(drawn(console, [_turn()], [_turn()]), width=120)
        assert max(len(line.rstrip()) for line in file.getvalue().splitlines()) <= 120
