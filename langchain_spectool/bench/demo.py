"""Runs the example agents with speculation off and on, and shows when what happened."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.status import Status
from rich.text import Text

from langchain_spectool.bench.drawing import WIDEST, drawn
from langchain_spectool.bench.timeline import Timeline, TurnTimes
from langchain_spectool.errors import SpectoolError

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("swe_agent", "search_agent")
_WARM_UP_SPEED = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One run of an example, from the question to the last answer."""

    wall_s: float
    turns: Sequence[TurnTimes]
    messages: object
    """The messages, reduced to what must be equal in both arms."""
    reached: bool
    """Whether the agent did what it was asked to."""
    hits: int = 0
    misses: int = 0
    wasted: int = 0
    wasted_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An example without and with speculation."""

    name: str
    about: str
    goal: str
    plain: Arm
    speculative: Arm

    @property
    def same_messages(self) -> bool:
        """Whether both runs said the same things."""
        return self.plain.messages == self.speculative.messages

    @property
    def saved_pct(self) -> float:
        """Share of the plain run's time that was saved, in per cent."""
        return 100 * (1 - self.speculative.wall_s / self.plain.wall_s)

    def as_json(self) -> dict[str, object]:
        """Return the figures under the names `--json` prints."""
        return {
            "name": self.name,
            "plain_s": round(self.plain.wall_s, 3),
            "speculative_s": round(self.speculative.wall_s, 3),
            "saved_pct": round(self.saved_pct, 1),
            "hits": self.speculative.hits,
            "misses": self.speculative.misses,
            "same_messages": self.same_messages,
        }


def show(*, speed: float = 1.0, as_json: bool = False) -> int:
    """Run both examples and print how they went; 1 if speculation changed what was said.

    Args:
        speed: Divides every simulated delay.
        as_json: Print figures only, as JSON; progress still goes to stderr.

    Raises:
        SpectoolError: The examples, or what they need, are not installed here.
    """
    console = Console(highlight=False)
    ran: list[Comparison] = []
    for comparison in compare(speed=speed, console=Console(stderr=True, highlight=False)):
        ran.append(comparison)
        if not as_json:
            _print(comparison, console)
    if as_json:
        console.out(json.dumps({"examples": [each.as_json() for each in ran]}))
    else:
        console.print(_fine_print(speed), width=min(console.width, WIDEST))
    good = all(c.same_messages and c.plain.reached and c.speculative.reached for c in ran)
    return 0 if good else 1


def compare(*, speed: float, console: Console) -> Iterator[Comparison]:
    """Run each example off and on, and tell `console` how far it is.

    Raises:
        SpectoolError: The examples, or what they need, are not installed here.
    """
    modules = {name: _example(name) for name in NAMES}
    with console.status("starting") as status:
        steps = _Steps(console, status)
        for name, module in modules.items():
            for speculative in (False, True):  # the first run of anything pays for imports
                _run(module, speculative=speculative, speed=_WARM_UP_SPEED, on_step=_ignore)
            off = _run(module, speculative=False, speed=speed, on_step=steps.of(f"{name}, off"))
            on = _run(module, speculative=True, speed=speed, on_step=steps.of(f"{name}, on"))
            status.stop()
            yield Comparison(
                name=name,
                about=(module.__doc__ or "").partition("\n")[0],
                goal=off[1],
                plain=off[0],
                speculative=on[0],
            )
            status.start()


class _Steps:
    """Shows what the agent does: live in a terminal, one line a run elsewhere."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status

    def of(self, run: str) -> Callable[[str], None]:
        """Return what tells the steps of one run."""
        if not self._console.is_terminal:
            self._console.print(f"running {run}")
        began_s = time.monotonic()

        def step(text: str) -> None:
            self._status.update(f"{run}  {time.monotonic() - began_s:5.1f} s  {text}")

        return step


def _ignore(_: str) -> None:
    """Nobody watches a warm-up."""


def _run(
    module: ModuleType, *, speculative: bool, speed: float, on_step: Callable[[str], None]
) -> tuple[Arm, str]:
    timeline = Timeline(on_step)
    with module.build_agent(speculative, speed=speed, observers=[timeline]) as example:
        began_s = time.monotonic()
        config = {"callbacks": [timeline]}
        state = asyncio.run(example.graph.ainvoke(example.inputs, config))
        wall_s = time.monotonic() - began_s
        messages = state["messages"]
        report = example.speculation.report() if example.speculation else None
        arm = Arm(
            wall_s=wall_s,
            turns=timeline.finished(),
            messages=import_module("example").comparable(messages),
            reached=example.verify(messages),
            hits=report.hits if report else 0,
            misses=report.misses if report else 0,
            wasted=report.wasted if report else 0,
            wasted_s=report.wasted_s if report else 0.0,
        )
        return arm, example.goal


def _example(name: str) -> ModuleType:
    if not (EXAMPLES / f"{name}.py").is_file():
        msg = (
            f"there is no {EXAMPLES / name}.py. The demo runs the agents in `examples/`, which "
            "come with the source of langchain-spectool and not with its wheel: unpack the "
            "source and run `make demo` there"
        )
        raise SpectoolError(msg)
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        msg = f"{name}.py needs the module {error.name!r}: run `make demo`, which installs it"
        raise SpectoolError(msg) from error


# --- what is printed


def _print(comparison: Comparison, console: Console) -> None:
    width = min(console.width, WIDEST)
    console.rule(comparison.name, align="left", style="dim")
    console.print(comparison.about, width=width)
    console.print()
    turns = (comparison.plain.turns, comparison.speculative.turns)
    console.print(drawn(console, *turns), width=width)
    console.print()
    console.print(_summary(comparison), width=width)
    console.print()


def _summary(comparison: Comparison) -> Text:
    plain, ours = comparison.plain, comparison.speculative
    calls = sum(len(turn.calls) for turn in ours.turns)
    text = Text()
    text.append(
        f"{plain.wall_s:.2f} s off, {ours.wall_s:.2f} s on: "
        f"{plain.wall_s - ours.wall_s:.2f} s ({comparison.saved_pct:.0f} %) saved.",
        style="bold",
    )
    text.append(
        f" {ours.hits} of {calls} tool calls were answered by early runs; "
        f"early runs that answered nothing: {ours.wasted}, {ours.wasted_s:.2f} s of tool time.\n"
        f"Same messages off and on: {_yes(fact=comparison.same_messages)}. "
        f"{comparison.goal[0].upper()}{comparison.goal[1:]}: "
        f"{_yes(fact=plain.reached)} off, {_yes(fact=ours.reached)} on."
    )
    return text


def _yes(*, fact: bool) -> str:
    return "yes" if fact else "NO"


def _fine_print(speed: float) -> Text:
    scripted, swe, search = (import_module(name) for name in ("scripted", *NAMES))
    text = (
        f"What is simulated: the models are scripted, the main one at {scripted.TOKENS_PER_S:.0f} "
        f"tokens/s and the draft at {scripted.DRAFT_TOKENS_PER_S:.0f}; tools of swe_agent wait "
        f"{swe.TOOL_DELAY_S} s, as a remote sandbox would, and the service of search_agent "
        f"{search.SERVICE_DELAY_S} s. Files, tests, edits, HTTP and ranking are real. The draft's "
        "habits were written with the main script in view, so the percentages illustrate these "
        "two scenarios and predict no others: yours follow from how long your model writes, how "
        "long your tools take, and how often the draft is right."
    )
    if speed != 1:
        text += f" This time every simulated delay was divided by {speed:g}."
    if (mode := os.environ.get("SPECTOOL_MODE")) not in (None, "", "on"):
        text += f" SPECTOOL_MODE={mode} is set: unset it to let speculation run."
    return Text(text, style="dim")
