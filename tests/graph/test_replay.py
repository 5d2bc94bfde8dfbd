"""`spectool replay`: figures checked by hand, and what the command makes of good and bad input."""

import json
import random
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from langchain_spectool import Guess, TurnRequest, cli
from langchain_spectool.bench.evaluate import fit, replay, split_by_task
from langchain_spectool.bench.replay import mean, rounded
from langchain_spectool.bench.scoring import TurnScore, calibration_error, gates, percentile
from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces.tools import kit_of
from langchain_spectool.traces.trajectory import Trajectory

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look"}, "x_read_only": True},
    {"type": "function", "function": {"name": "find"}, "x_read_only": True},
    {"type": "function", "function": {"name": "pay"}, "x_read_only": False},
]
KIT = kit_of(TOOLS)

Call = tuple[str, dict[str, Any]]


class Answers:
    """Guesses by a table: from the number of messages to guesses; it keeps what it was asked."""

    name = "answers"
    samples = 1
    timeout_s = 1.0

    def __init__(self, table: Mapping[int, Sequence[object]]) -> None:
        self.table = table
        self.asked: list[TurnRequest] = []
        self.learned: list[tuple[TurnRequest, Sequence[Mapping[str, Any]]]] = []
        self.fitted: list[str] = []

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        self.asked.append(request)
        for guess in self.table.get(len(request.messages), ()):
            if isinstance(guess, Exception):
                raise guess
            yield guess  # type: ignore[misc]

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        for guess in self.guess(request, sample):
            yield guess

    def learn(self, request: TurnRequest, calls: Sequence[Mapping[str, Any]]) -> None:
        self.learned.append((request, calls))

    def fit(self, trajectories: Iterable[Trajectory]) -> None:
        self.fitted += [each.run for each in trajectories]


def _guess(tool: str, confidence: float, **args: Any) -> Guess:
    return Guess(tool=tool, args=args, confidence=confidence)


def _run(*turns: Sequence[Call], run: str = "r", task: str = "t") -> Trajectory:
    """Record a question, then each turn with the answers of its tools."""
    messages: list[BaseMessage] = [HumanMessage("go")]
    for turn in turns:
        asked = [tool_call(name=n, args=a, id=str(i)) for i, (n, a) in enumerate(turn)]
        messages.append(AIMessage("", tool_calls=asked))
        messages += [ToolMessage("ok", tool_call_id=str(i)) for i, _ in enumerate(turn)]
    return Trajectory(
        messages=tuple(messages), tools=KIT.tools, read_only=KIT.read_only, run=run, task=task
    )


RUN = _run(
    [("look", {"q": 1})],  # after 1 message
    [("look", {"q": 2}), ("find", {"q": 2})],  # after 3
    [("pay", {"n": 5})],  # after 6
    [("find", {"q": 3})],  # after 8
    [],  # after 10
)
TABLE: dict[int, list[object]] = {
    1: [_guess("look", 0.9, q=1)],  # right at once
    3: [
        _guess("pay", 0.8, n=5),  # not read-only: no place among the guesses that may run
        _guess("look", 0.6, q=9),  # the right tool only
        _guess("look", 0.6, q=9),  # the same guess once more
        _guess("find", 0.2, q=2),  # right in the second place, in the third of all
    ],
    6: [_guess("pay", 0.7, n=5), _guess("look", 0.3, q=1)],  # right only where all tools count
    8: [_guess("look", 0.35, q=3)],  # wrong
    10: [_guess("find", 0.15, q=1)],  # where nothing is called
}


def test_the_figures_are_those_counted_by_hand() -> None:
    """Ranks, names, gates and calibration of five turns, each with its reason in the table."""
    found = replay(Answers(TABLE), [RUN]).as_json()
    third = 1 / 3
    assert found["read_only"] == pytest.approx(
        {"hit@1": third, "hit@3": 2 * third, "hit@9": 2 * third, "name@1": 2 * third, "n": 3}
    )
    assert found["all"] == pytest.approx(
        {"hit@1": 2 / 4, "hit@3": 3 / 4, "hit@9": 3 / 4, "name@1": 2 / 4, "n": 4}
    )
    # First guesses that may run: 0.9 right, 0.6 wrong, 0.3 wrong, 0.35 wrong, 0.15 wrong.
    by_gate = {gate.pop("gate"): gate for gate in found["gates"]}
    assert [*by_gate] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert by_gate[0.1] == pytest.approx(
        {"turns_pct": 100, "precision": 1 / 5, "guesses_per_turn": 6 / 5}
    )
    assert by_gate[0.3] == pytest.approx(
        {"turns_pct": 80, "precision": 1 / 4, "guesses_per_turn": 4 / 5}
    )
    assert by_gate[0.9] == pytest.approx(
        {"turns_pct": 20, "precision": 1, "guesses_per_turn": 1 / 5}
    )
    # Bins: |0.9 - 1|, |0.6|, |0.3 + 0.35|, |0.15|, over five first guesses.
    assert found["ece"] == pytest.approx((0.1 + 0.6 + 0.65 + 0.15) / 5)
    assert (found["trajectories"], found["turns"], found["errors"], found["fit_s"]) == (1, 5, 0, 0)
    assert found["predict_us"]["p99"] >= found["predict_us"]["p50"] >= 0


def test_requests_are_those_of_a_live_agent() -> None:
    """Histories grow by the same message objects; read-only tools are declared, then all."""
    answers = Answers({})
    replay(answers, [RUN])
    tools = [*KIT.tools]
    assert [(len(r.messages), [*r.declared]) for r in answers.asked] == [
        (1, tools[:2]),
        (1, tools),
        (3, tools[:2]),
        (3, tools),
        (6, tools[:2]),
        (6, tools),
        (8, tools[:2]),
        (8, tools),
        (10, tools[:2]),  # nothing was called: there is nothing more to ask
    ]
    for request in answers.asked:
        assert [*request.tools] == tools
        seen = zip(request.messages, RUN.messages, strict=False)
        assert all(shown is recorded for shown, recorded in seen)


def test_each_message_of_a_model_is_a_turn() -> None:
    """A message that follows another one of the model is guessed from both sides of that."""
    calls = [tool_call(name="look", args={}, id="1")]
    messages = (HumanMessage("go"), AIMessage("wait"), AIMessage("", tool_calls=calls))
    run = Trajectory(messages=messages, tools=KIT.tools, read_only=KIT.read_only, run="r", task="t")
    found = replay(Answers({2: [_guess("look", 0.5)]}), [run]).as_json()
    assert found["turns"] == 2
    assert (found["read_only"]["hit@1"], found["read_only"]["n"]) == (1, 1)


@pytest.mark.parametrize(
    ("guessed", "called", "equal"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({}, {"a": None}, False),
        ({"a": float("nan")}, {"a": float("nan")}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["look", "unheard_of"])
def test_calls_are_compared_exactly(
    guessed: dict[str, Any], called: dict[str, Any], name: str, *, equal: bool
) -> None:
    """Value and type count, order does not; the same for tools that nobody listed."""
    found = replay(Answers({1: [_guess(name, 1.0, **guessed)]}), [_run([(name, called)])])
    assert found.as_json()["all"]["hit@1"] == equal


def test_an_error_costs_the_guesses_behind_it() -> None:
    """What was yielded before counts, the error is counted, and the replay goes on."""
    table = {1: [_guess("look", 0.9, q=1), ValueError("planted"), _guess("look", 0.9, q=2)]}
    found = replay(Answers(table), [RUN]).as_json()
    assert found["errors"] == 2  # asked twice
    assert found["read_only"]["hit@1"] == pytest.approx(1 / 3)


def test_what_is_no_guess_is_an_error() -> None:
    """A speculator that yields something else is named instead of scored."""
    with pytest.raises(SpectoolError, match="yields `Guess` objects, got 7"):
        replay(Answers({1: [7]}), [RUN])


def test_samples_are_asked_one_after_the_other() -> None:
    """Equal guesses of several samples stand where the first one stood."""
    answers = Answers({1: [_guess("look", 0.5, q=9), _guess("look", 0.4, q=1)]})
    answers.samples = 3
    found = replay(answers, [_run([("look", {"q": 1})])]).as_json()
    assert (found["read_only"]["hit@1"], found["read_only"]["hit@3"]) == (0, 1)
    assert found["gates"][0]["guesses_per_turn"] == 2


def test_learning_follows_each_prediction() -> None:
    """Online, every turn is learned once, after it was asked about, with read-only tools."""
    answers = Answers({})
    replay(answers, [RUN], learning=True)
    turns = [message for message in RUN.messages if isinstance(message, AIMessage)]
    assert [calls for _, calls in answers.learned] == [turn.tool_calls for turn in turns]
    assert [[*request.declared] for request, _ in answers.learned] == [[*KIT.tools[:2]]] * 5
    assert replay(answers, [RUN]).turns  # offline
    assert len(answers.learned) == 5


def test_nothing_to_count_is_none() -> None:
    """Without turns, calls or guesses there are no shares, rather than zeros."""
    found = replay(Answers({}), []).as_json()
    assert found["read_only"] == {
        "hit@1": None,
        "hit@3": None,
        "hit@9": None,
        "name@1": None,
        "n": 0,
    }
    assert found["gates"][0] == {
        "gate": 0.1,
        "turns_pct": None,
        "precision": None,
        "guesses_per_turn": None,
    }
    assert (found["ece"], found["predict_us"]) == (None, {"p50": None, "p99": None})


def test_certain_guesses_fall_into_the_last_bin() -> None:
    """A confidence of 1 has no bin above it; of a perfect guesser the error is 0."""
    sure = TurnScore(confidences=(1.0,), right=True, read_only=None, every=None)
    mute = TurnScore(confidences=(), right=False, read_only=None, every=None)
    assert calibration_error([sure, sure, mute]) == 0
    assert gates([sure, mute])[8] == {
        "gate": 0.9,
        "turns_pct": 50,
        "precision": 1,
        "guesses_per_turn": 0.5,
    }


def test_percentiles_are_values_that_were_seen() -> None:
    """The smallest value that the share of all does not exceed."""
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([3.0], 0.5)) == (
        50,
        99,
        3,
    )


def test_a_split_keeps_tasks_together() -> None:
    """Seven tenths of the sorted and shuffled tasks train; runs of one task stay on one side."""
    runs = [_run(task=f"t{n % 10}", run=str(n)) for n in range(25)]
    train, test = split_by_task(runs, 3)
    tasks = sorted({run.task for run in runs})
    random.Random(3).shuffle(tasks)  # noqa: S311 - the split that is promised
    assert {run.task for run in train} == {*tasks[:7]}
    assert {run.task for run in test} == {*tasks[7:]}
    assert len(train) + len(test) == 25


def test_only_what_can_fit_is_fitted() -> None:
    """A speculator without `fit` has nothing to learn from recordings."""
    answers = Answers({})
    fit(answers, [RUN])
    assert answers.fitted == ["r"]
    assert fit(object(), [RUN]) == 0


def test_means_keep_the_shape() -> None:
    """Figures of several seeds: None counts for nothing, whole numbers stay whole."""
    found = [{"a": [{"x": 0.5, "n": 3}]}, {"a": [{"x": None, "n": 4}]}, {"a": [{"x": 0.6, "n": 4}]}]
    assert mean(found) == {"a": [{"x": pytest.approx(0.55), "n": 4}]}
    assert mean([{"x": None}, {"x": None}]) == {"x": None}
    assert rounded({"x": [1 / 3], "y": None, "n": 7}) == {"x": [0.3333], "y": None, "n": 7}


SOURCE = '''
from langchain_spectool import Guess

class Echo:
    """Guesses whatever was called most, from what it was told."""
    name, samples, timeout_s = "echo", 1, 1.0

    def __init__(self):
        self.seen = []

    def guess(self, request, sample):
        if self.seen:
            yield Guess(tool="look", args=max(self.seen, key=self.seen.count), confidence=0.5)

    async def aguess(self, request, sample):
        for guess in self.guess(request, sample):
            yield guess

    def learn(self, request, calls):
        self.seen += [call["args"] for call in calls]

    def fit(self, trajectories):
        for each in trajectories:
            for message in each.messages:
                self.seen += [call["args"] for call in getattr(message, "tool_calls", ())]

def echo():
    return Echo()

one = Echo()
nothing = 7
'''


def _record(task: int, value: int) -> dict[str, Any]:
    call = {"id": "c", "function": {"name": "look", "arguments": json.dumps({"q": value})}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [call]}]
    return {"messages": messages, "task_id": f"t{task}", "run": "r", "tools_ref": "shop"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write ten runs that call the same, their tools, and a speculator."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "shop.json").write_text(json.dumps(TOOLS))
    (tmp_path / "source.py").write_text(SOURCE)
    records = "".join(json.dumps(_record(n, 1)) + "\n" for n in range(10))
    (tmp_path / "runs.jsonl").write_text(records)
    return tmp_path


Replay = Callable[..., Any]


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Replay:
    """Run `spectool replay` on the folder's runs and return what it printed as JSON."""

    def replayed(*argv: str, source: str = "Echo") -> Any:
        target = f"{folder / 'source.py'}:{source}"
        given = ["replay", str(folder / "runs.jsonl"), "--json", "--source", target, *argv]
        assert cli.main(given) == 0
        return json.loads(capsys.readouterr().out)

    return replayed


def test_by_default_it_learns_as_it_goes(run: Replay) -> None:
    """From empty: the first run cannot be guessed, every other can."""
    found = run()
    assert found["read_only"]["hit@1"] == 0.9
    assert (found["trajectories"], found["bad_lines"], found["fit_s"]) == (10, 0, 0)
    assert "seeds" not in found


def test_offline_it_learns_nothing(run: Replay) -> None:
    """What starts empty stays empty."""
    assert run("--offline")["read_only"]["hit@1"] == 0


def test_a_split_learns_first(run: Replay) -> None:
    """Of ten tasks, seven are learned from and three guessed; the seed is 0 if none is given."""
    found = run("--split", "task")
    assert (found["read_only"]["hit@1"], found["read_only"]["n"]) == (1, 3)
    assert [each["seed"] for each in found["seeds"]] == [0]


@pytest.mark.parametrize(
    "argv", [["--seed", "4", "--seed", "5"], ["--seeds", "4", "5"], ["--seed", "4", "--seeds", "5"]]
)
def test_several_seeds_give_each_and_the_mean(run: Replay, argv: list[str]) -> None:
    """Means stand where one seed's figures would; each seed's own follow."""
    found = run("--split", "task", *argv)
    assert [each["seed"] for each in found["seeds"]] == [4, 5]
    assert all(each["read_only"]["n"] == 3 for each in found["seeds"])
    assert found["read_only"]["n"] == 3


@pytest.mark.parametrize("source", ["Echo", "echo", "one"])
def test_a_source_is_an_object_a_class_or_a_function(run: Replay, source: str) -> None:
    """Each names a speculator."""
    assert run(source=source)["read_only"]["n"] == 10


def test_without_json_it_prints_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People get one column a seed, the gates, and the rest in a line."""
    source = f"{folder / 'source.py'}:Echo"
    given = ["replay", str(folder / "runs.jsonl"), "--source", source]
    assert cli.main([*given, "--split", "task", "--seeds", "1", "2"]) == 0
    shown = capsys.readouterr().out
    for part in ("read_only hit@1", "seed 2", "mean", "precision", "calibration error", "3 runs"):
        assert part in shown
    assert cli.main(given) == 0
    assert "seed" not in capsys.readouterr().out


def test_bad_lines_are_named_and_counted(
    folder: Path, run: Replay, capsys: pytest.CaptureFixture[str]
) -> None:
    """Good lines are replayed, the first bad ones are named, the others counted, all printably."""
    path = folder / "runs.jsonl"
    path.write_text('{"messages": [{"role": "\\u001b[2J"}]}\n' * 25 + path.read_text())
    given = ["replay", str(path), "--source", f"{folder / 'source.py'}:Echo", "--json"]
    assert cli.main(given) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["bad_lines"] == 25
    lines = printed.err.splitlines()
    assert lines[0].startswith("spectool: skipped runs.jsonl:1: message 1: ")
    assert len(lines) == 21
    assert lines[-1] == "spectool: skipped 5 more"
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["missing.jsonl"], "'missing.jsonl' is neither a file nor a folder"),
        (["source.py"], "no recorded run is in 'source.py'"),
        (["runs.jsonl", "--tools", "source.py"], "tools file 'source.py' cannot be used"),
        (["runs.jsonl", "--source", "source.py:nothing"], "'source.py:nothing' is of type int"),
        (["runs.jsonl", "--source", "source.py:missing"], "cannot be loaded"),
        (["runs.jsonl", "--source", "anything"], "got 'anything'"),
        (["runs.jsonl", "--seed", "1"], "add --split task"),
        (["runs.jsonl", "--patterns", "p", "--source", "a:b"], "patterns file is for the source"),
    ],
    ids=lambda part: str(part)[-30:],
)
def test_unusable_input_ends_with_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    reason: str,
) -> None:
    """One line on stderr says what is wrong, and nothing is printed as a result."""
    monkeypatch.chdir(folder)
    if "--source" not in argv:
        argv = [*argv, "--source", "source.py:Echo"]
    assert cli.main(["replay", *argv]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith("spectool: ")
    assert reason in printed.err.splitlines()[-1]


@pytest.mark.parametrize(
    "argv", [[], ["a", "--split", "run"], ["a", "--seed", "x"], ["a", "--online", "--offline"]]
)
def test_wrong_usage_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, unknown and contradictory arguments end with usage on stderr."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["replay", *argv])
    assert ended.value.code == 2
    assert "usage: spectool replay" in capsys.readouterr().err
