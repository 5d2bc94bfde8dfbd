"""`spectool model`: figures on the command line, and what a shadow log promises is what comes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from langchain_spectool import Policy, SpeculationMiddleware, cli, speculatable
from langchain_spectool.speculators.draft_model import DraftModel
from langchain_spectool.telemetry.event_log import EventLog
from langchain_spectool.testing import ScriptedModel, Turn, calls, text

POINT = ["model", "--G", "2", "--T", "1", "--g", "0.3", "--alpha", "0.8"]
Printed = pytest.CaptureFixture[str]


def found(argv: list[str], capsys: Printed) -> dict[str, Any]:
    """Run a command line with `--json` and return what it printed."""
    assert cli.main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_point_by_hand(capsys: Printed) -> None:
    """The keys of the documents, with equation (2) at the top level."""
    said = found(POINT, capsys)
    assert said["speedup"] == pytest.approx(3 / 2.2, abs=1e-6)
    assert said["bound"] == 1.5
    assert said["saving"] == pytest.approx(0.8 / 3, abs=1e-6)
    assert said["turn_s"] == {"plain": 3.0, "speculative": 2.2}
    assert said["break_even"] == {"alpha": 0.0, "g_s": 2.0, "cost_s": 0.8, "cost_usd": None}
    drawn = said["turn_model"]
    assert drawn["saving"] < said["saving"]
    assert drawn["gap_points"] == pytest.approx(drawn["jensen_gap_points"], abs=0.6)


def test_without_spread_both_models_agree(capsys: Printed) -> None:
    """Constant times leave only the draws of hits: five standard errors."""
    drawn = found([*POINT, "--spread-G", "0", "--spread-T", "0"], capsys)["turn_model"]
    assert drawn["jensen_gap_points"] == pytest.approx(0, abs=1e-6)
    assert drawn["gap_points"] == pytest.approx(0, abs=500 * drawn["standard_error"])


def test_money_counts_as_waiting(capsys: Printed) -> None:
    """0.2 cents a turn at 1 cent a second are 0.2 s of it; 0.1 s more are spent anyway."""
    prices = ["--cost-usd", "0.002", "--second-usd", "0.01", "--cost", "0.1"]
    said = found([*POINT, *prices], capsys)
    assert said["break_even"] == {
        "alpha": 0.3,
        "g_s": 1.625,
        "cost_s": 0.8,
        "cost_usd": pytest.approx(0.007),
    }
    assert said["turn_s"]["speculative"] == pytest.approx(2.3)


def test_streams_samples_chains_and_closing_turns_are_taken(capsys: Printed) -> None:
    """What the turn model knows beyond equation (2) is set by options and said in the answer."""
    more = ["--samples", "3", "--likeness", "0.5", "--turns", "3", "--depth", "2"]
    said = found([*POINT, *more, "--closed-at", "0.25", "1"], capsys)
    drawn = said["turn_model"]
    assert said["alpha"] > said["given"]["alpha"] == 0.8
    assert [drawn[name] for name in ("calls", "turns", "closing_turn", "depth", "samples")] == [
        2, 3, True, 2, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["model"], "--G, --T, --g, --alpha missing"),
        (["model", "--G", "2", "--T", "1", "--g", "0"], "--alpha missing"),
        ([*POINT[:-1], "1.5"], "alpha must be a share from 0 to 1, got 1.5"),
        ([*POINT, "--G", "-1"], "got -1.0"),
        ([*POINT, "--G", "nan"], "got nan"),
        ([*POINT, "--samples", "0"], "samples must be 1 or more"),
        ([*POINT, "--cost-usd", "1"], "--second-usd"),
        ([*POINT, "--second-usd", "-1"], "prices are above 0"),
        (["model", "--traces", "nowhere.jsonl"], "neither a file nor a folder"),
        (["model", "--traces", "nowhere.jsonl", "--calls", "2"], "leave it out with --traces"),
    ],
)
def test_bad_input_ends_with_2(argv: list[str], message: str, capsys: Printed) -> None:
    """One line on stderr, no figure."""
    assert cli.main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_people_are_told_both_models(capsys: Printed) -> None:
    """Without `--json` there is a table and what it means."""
    assert cli.main(POINT) == 0
    out = capsys.readouterr().out
    assert "1.364" in out
    assert "It pays with any right guess, as guessing costs nothing here" in out
    assert "with g below 2.000 s" in out
    assert "points too much (Jensen)" in out
    assert cli.main([*POINT, "--cost", "1.5"]) == 0
    assert "does not pay here" in capsys.readouterr().out


def test_a_guess_that_is_late_at_the_means_is_no_contradiction(capsys: Printed) -> None:
    """Some drawn turns are longer than the guess: both columns are said, neither denied."""
    assert cli.main(["model", "--G", "2", "--T", "1", "--g", "3", "--alpha", "0.8"]) == 0
    out = capsys.readouterr().out
    assert "does not pay here" not in out
    assert "At the means guessing does not pay, turn by turn it saves" in out
    assert "promises -" not in out
    assert "points too little" in out
    constant = ["--spread-G", "0", "--spread-T", "0"]
    assert cli.main(["model", "--G", "2", "--T", "1", "--g", "3", "--alpha", "0.8", *constant]) == 0
    assert "no right guess comes before the model's answer" in capsys.readouterr().out


# --- what a shadow log promises

WANTED = [("look", "a"), ("look", "b"), ("pay", "c"), ("look", "d"), ("look", "e")]
GUESSED = ["a", "wrong", "wrong", "d", "e"]


@speculatable
@tool
async def look(query: str) -> str:
    """Look it up."""
    await asyncio.sleep(1.0)
    return query


@tool
async def pay(query: str) -> str:
    """Pay."""
    await asyncio.sleep(1.0)
    return query


def scripted(messages: list[AIMessage], *paces_s: float) -> ScriptedModel:
    """Make a model that takes its time for each answer."""
    turns = [
        Turn(message=message, generation_s=pace_s)
        for message, pace_s in zip([*messages, text("done")], paces_s, strict=True)
    ]
    return ScriptedModel(turns=turns)


async def seconds_of(mode: Any, log: EventLog | None = None) -> float:
    """Run the agent once, and return its seconds of virtual time."""
    main = scripted(
        [calls((name, {"query": query})) for name, query in WANTED], 2.0, 1.0, 3.0, 1.2, 4.0, 2.0
    )
    draft = scripted([calls(("look", {"query": query})) for query in GUESSED], *[0.5] * 6)
    middleware = SpeculationMiddleware(
        speculators=[DraftModel(draft)],
        policy=Policy(mode=mode),
        observers=[] if log is None else [log],
    )
    agent = create_agent(main, [look, pay], middleware=[middleware])
    clock = asyncio.get_running_loop().time
    began_s = clock()
    await agent.ainvoke({"messages": [("user", "go")]})
    return clock() - began_s


async def test_shadow_log_promises_what_speculation_saves(tmp_path: Path, capsys: Printed) -> None:
    """Hits that are hidden and one that is waited for, misses, a tool that may not run early."""
    with EventLog(tmp_path / "events.jsonl") as log:
        shadow_s = await seconds_of("shadow", log)
    plain_s, on_s = await seconds_of("off"), await seconds_of("on")
    assert shadow_s == pytest.approx(plain_s) == pytest.approx(18.2)
    assert on_s == pytest.approx(18.2 - 1 - 0.7 - 1)
    said = found(["model", "--traces", str(tmp_path / "events.jsonl")], capsys)
    assert said["saving"] == pytest.approx(1 - on_s / plain_s, abs=1e-6)
    assert said["fitted"]["alpha"] == pytest.approx(3 / 4)  # `pay` is not declared
    assert said["fitted"]["early_share"] == pytest.approx(4 / 5)
    assert said["fitted"]["early_share_known"]
    assert said["bound"] == pytest.approx(18.2 / (18.2 - 4), abs=1e-6)
    assert said["saving_as_on"] == pytest.approx(said["saving"])
    assert said["mode"] == "shadow"
    assert said["fitted"]["g_s"]["mean"] == pytest.approx(0.5)
    assert said["fitted"]["T_s"]["mean"] == pytest.approx(1.0)
    low, high = said["interval"]
    assert 0 <= low < said["saving"] < high < 1
    assert not any("have no time" in note for note in said["notes"])
    assert any("units are few" in note for note in said["notes"])


async def test_log_of_what_was_on_fits_the_same(tmp_path: Path, capsys: Printed) -> None:
    """Hits tell the times of their early runs: the prediction is what was measured."""
    with EventLog(tmp_path / "events.jsonl") as log:
        on_s = await seconds_of("on", log)
    said = found(["model", "--traces", str(tmp_path / "events.jsonl")], capsys)
    assert said["turn_s"]["speculative"] == pytest.approx(on_s / 6, abs=1e-6)
    assert said["turn_s"]["plain"] == pytest.approx(18.2 / 6, abs=1e-6)
    form, calling_s = said["closed_form"], 18.2 - 2.0
    assert form["turn_by_turn"] == pytest.approx((18.2 - on_s) / calling_s, abs=1e-6)
    assert form["gap_points"] == pytest.approx(
        100 * (form["saving"] - form["turn_by_turn"]), abs=1e-4
    )


def test_a_log_of_an_early_version_says_at_most(tmp_path: Path, capsys: Printed) -> None:
    """It does not tell whether `mail` may run early, nor which guesses would be held back."""
    path = tmp_path / "events.jsonl"
    mail = _turns("a", 0.5).replace('"tools": ["look"]', '"tools": ["look", "mail"]')
    path.write_text(mail.replace('"position": 1, "tools"', '"position": 2, "tools"'))
    said = found(["model", "--traces", str(path)], capsys)
    assert (said["fitted"]["early_share_known"], said["saving_as_on"]) == (False, None)
    assert cli.main(["model", "--traces", str(path)]) == 0
    out = capsys.readouterr().out
    assert "at most 100 % of the calls may run early" in out
    assert "times as fast, at most " in out
    assert "At most that: the log does not say which of its guesses" in out


async def test_a_log_of_both_modes_does_not_mix_them(tmp_path: Path, capsys: Printed) -> None:
    """The figures are of the live turns; those in shadow mode are promised beside them."""
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("on", "shadow", "both")}
    for mode in ("on", "shadow"):
        with EventLog(paths[mode]) as log:
            await seconds_of(mode, log)
    paths["both"].write_text(paths["shadow"].read_text() + paths["on"].read_text())
    on, shadow, both = (
        found(["model", "--traces", str(paths[name])], capsys) for name in ("on", "shadow", "both")
    )
    aside = both.pop("shadow")
    assert (on.pop("shadow"), on) == (None, both)
    assert aside["turns"] == 6
    assert aside["saving"] == shadow["saving"]
    assert cli.main(["model", "--traces", str(paths["both"])]) == 0
    out = capsys.readouterr().out
    assert "Speculation saved " in out
    assert "In 6 more it was in shadow mode: it would have saved 14.8 %" in out


async def test_log_of_mode_off_says_what_is_missing(tmp_path: Path, capsys: Printed) -> None:
    """Nothing is recorded: the remedy is shadow mode, not a figure."""
    with EventLog(tmp_path / "events.jsonl") as log:
        await seconds_of("off", log)
    assert cli.main(["model", "--traces", str(tmp_path / "events.jsonl")]) == 2
    assert "mode='shadow'" in capsys.readouterr().err


async def test_people_are_told_what_it_would_save(tmp_path: Path, capsys: Printed) -> None:
    """A headline with its interval, the closed form beside it, bad lines named."""
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        await seconds_of("shadow", log)
    path.write_text(path.read_text() + "half a li")
    assert cli.main(["model", "--traces", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Speculation would save 14.8 % of the time (95 %: " in out
    assert "80 % of the calls may run early" in out
    assert "Of the turns with calls, equation (2) at the means says" in out
    assert "Without the guesses that would have been held back" in out
    assert "note: skipped line " in out
    assert cli.main(["model", "--traces", str(path), "--alpha", "0.5"]) == 2
    assert "leave --G --T --g --alpha out" in capsys.readouterr().err


# --- recorded runs

TOOLS = [
    {"type": "function", "function": {"name": "look"}, "x_read_only": True},
    {"type": "function", "function": {"name": "pay"}, "x_read_only": False},
]
TOOL_CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"q": "4711"}'},
}
MESSAGES = [
    {"role": "user", "content": "order 4711"},
    {"role": "assistant", "content": "", "tool_calls": [TOOL_CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "found"},
    {"role": "assistant", "content": "done"},
]


def recorded(folder: Path, *records: Any, tools: Any = TOOLS) -> list[str]:
    """Write recorded runs and their tools, and return the command line that reads them."""
    runs, listed = folder / "runs.jsonl", folder / "tools.json"
    runs.write_text("\n".join(map(json.dumps, records)))
    listed.write_text(json.dumps(tools))
    return ["model", "--traces", str(runs), "--tools", str(listed)]


def exported(trace: str, *, tool_s: float) -> list[dict[str, Any]]:
    """Make a trace of two turns of 2 s and 1 s, and a tool between them."""

    def run(kind: str, name: str, began: float, ended: float, **more: Any) -> dict[str, Any]:
        start, end = (f"2026-01-01T12:00:{at:06.3f}" for at in (began, ended))
        return {
            "run_type": kind, "name": name, "trace_id": trace, "start_time": start,
            "end_time": end, "dotted_order": f"{trace}.{began}", **more,
        }  # fmt: skip

    asked = {"inputs": {"messages": MESSAGES[:1]}, "outputs": {"message": MESSAGES[1]}}
    closed = {"inputs": {"messages": MESSAGES[:3]}, "outputs": {"message": MESSAGES[3]}}
    ended = 2.0 + tool_s
    return [
        run("llm", "model", 0.0, 2.0, **asked),
        run("tool", "look", 2.0, ended),
        run("llm", "model", ended, ended + 1, **closed),
    ]


def test_export_with_times_is_fitted(tmp_path: Path, capsys: Printed) -> None:
    """G and T are the export's; at alpha 0.5, half of the hidden 1 s and 1.7 s of 4 + 5.5 s."""
    records = [*exported("one", tool_s=1.0), *exported("two", tool_s=2.5)]
    argv = [*recorded(tmp_path, *records), "--alpha", "0.5", "--g", "0.3"]
    said = found(argv, capsys)
    assert said["source"] == "recorded runs with times"
    assert said["saving"] == pytest.approx(0.5 * 2.7 / 9.5, abs=1e-6)
    assert said["fitted"]["T_s"]["mean"] == pytest.approx(1.75)
    assert said["fitted"]["turns_without_calls"] == 2
    assert cli.main([*argv, "--G", "2"]) == 2
    assert "times of its own" in capsys.readouterr().err


def test_messages_without_times_need_them(tmp_path: Path, capsys: Printed) -> None:
    """What is missing is named; with it, the turns are the recorded ones."""
    argv = [*recorded(tmp_path, {"messages": MESSAGES}), "--alpha", "0.5", "--g", "0.3"]
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert "messages without times" in err
    assert "--G and --T" in err
    said = found([*argv, "--G", "2", "--T", "1"], capsys)
    assert said["source"] == "recorded runs without times"
    assert said["saving"] == pytest.approx(0.5 / 5, abs=1e-6)
    assert said["interval"] == [None, None]


def test_alpha_of_recorded_runs_is_that_of_patterns(tmp_path: Path, capsys: Printed) -> None:
    """Ten equal runs: patterns learns the call, and the interval tells how few they are."""
    records = [{"messages": MESSAGES, "task_id": str(number)} for number in range(10)]
    argv = [*recorded(tmp_path, *records), "--G", "2", "--T", "1"]
    said = found(argv, capsys)
    assert 0.5 < said["fitted"]["alpha"] < 1
    assert "over 10 turns with reads" in said["fitted"]["alpha_from"]
    low, high = said["interval"]
    assert 0 < low < said["saving"] < high
    assert cli.main([*argv, "--alpha", "0.5"]) == 2
    assert "add --g" in capsys.readouterr().err


def test_no_read_only_tool_is_said(tmp_path: Path, capsys: Printed) -> None:
    """Nothing could run early, whatever was guessed."""
    tools = [{**TOOLS[0], "x_read_only": False}]
    argv = [*recorded(tmp_path, {"messages": MESSAGES}, tools=tools), "--G", "2", "--T", "1"]
    assert cli.main(argv) == 2
    assert "x_read_only" in capsys.readouterr().err


def test_tools_that_take_no_time_leave_the_closed_form_out(tmp_path: Path, capsys: Printed) -> None:
    """Equation (2) is of tools that take some: there is nothing to save, and it is said."""
    argv = [*recorded(tmp_path, *exported("one", tool_s=0.0)), "--alpha", "0.5", "--g", "0"]
    said = found(argv, capsys)
    assert (said["saving"], said["closed_form"], said["break_even"]) == (0, None, None)
    assert cli.main(argv) == 0
    assert "Equation" not in capsys.readouterr().out


def test_empty_recording_is_said(tmp_path: Path, capsys: Printed) -> None:
    """With speculation off nothing is told: an empty log has a reason and a remedy."""
    (tmp_path / "events.jsonl").touch()
    assert cli.main(["model", "--traces", str(tmp_path)]) == 2
    assert "mode='shadow'" in capsys.readouterr().err


def test_a_log_for_each_run_tells_runs(tmp_path: Path, capsys: Printed) -> None:
    """Runs that differ are resampled whole, whether one log holds them or each has its own."""
    runs = [_turns(run, guess_s) for run, guess_s in (("a", 0.0), ("b", 1.9))]
    together, apart = tmp_path / "together.jsonl", [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    together.write_text("".join(runs))
    for path, run in zip(apart, runs, strict=True):
        path.write_text(run)
    one = found(["model", "--traces", str(together)], capsys)
    two = found(["model", "--traces", *map(str, apart)], capsys)
    assert "the interval resamples 2 runs" in one["notes"]
    assert two == one


def _turns(run: str, guess_s: float) -> str:
    """Return the lines of ten shadow turns with one right guess each."""
    lines: list[dict[str, Any]] = []
    for number in range(1, 11):
        own = {"turn": number, "tool": "look", "source": "draft", "log": run}
        lines += [
            {**own, "kind": "guess", "at_s": guess_s, "key_hash": "k"},
            {**own, "kind": "scored", "at_s": 2.0, "verdict": "right", "key_hash": "k"},
            {
                "turn": number,
                "run": run,
                "log": run,
                "kind": "turn_committed",
                "at_s": 2.0,
                "started_s": 0.0,
                "position": 1,
                "tools": ["look"],
            },
            {**own, "kind": "claim", "at_s": 2.0, "verdict": "shadow_hit", "position": 0}
            | {"key_hash": "k"},
            {**own, "kind": "call_ended", "at_s": 3.0, "position": 0}
            | {"started_s": 2.0, "spent_s": 1.0},
        ]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def test_logs_and_runs_do_not_mix(tmp_path: Path, capsys: Printed) -> None:
    """One kind at a time."""
    argv = recorded(tmp_path, {"messages": MESSAGES})
    log = tmp_path / "events.jsonl"
    log.write_text('{"kind": "guess", "at_s": 1.0}\n')
    assert cli.main([*argv[:2], str(log), *argv[2:]]) == 2
    assert "one kind at a time" in capsys.readouterr().err
