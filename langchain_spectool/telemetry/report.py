"""Adds events up: what speculation saved, what it wasted, and why it did nothing."""

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from langchain_spectool._core.events import Event
from langchain_spectool._core.verdicts import SERVED, IdleReason
from langchain_spectool._runtime.run_watch import WatchedRun
from langchain_spectool.telemetry.arms import Arms, Comparison, RunSample


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """The figures of one tool. Seconds are sums over calls, parallel ones included."""

    guesses: int = 0
    """Early runs that started."""
    hits: int = 0
    """Committed calls that an early run, or an equal committed call, answered."""
    misses: int = 0
    """Committed calls of a planned turn that ran for real."""
    wasted: int = 0
    """Early runs that answered nothing."""
    hidden_s: float = 0.0
    """Seconds of the tool's work that nobody waited for."""
    wasted_s: float = 0.0
    """Seconds of the tool's work that answered nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """How often one source was right, by what the model then called."""

    guesses: int = 0
    """Different calls it guessed, whether they ran or not."""
    right: int = 0
    """Those of them that the model made in the same turn."""

    @property
    def precision(self) -> float | None:
        """Share of right guesses; None before the first."""
        return self.right / self.guesses if self.guesses else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The figures so far."""

    turns: int
    """Turns of the main model."""
    guesses: int
    hits: int
    misses: int
    shadow_hits: int
    """Committed calls that a guess had right in shadow mode, where nothing runs early."""
    wasted: int
    hidden_s: float
    wasted_s: float
    waited_s: float
    """Seconds that claims waited for flights still in the air."""
    observed_s: float
    """Seconds of the turns that had a plan: generation and tool calls, as they were."""
    serial_s: float
    """The same turns had every call run after the model's answer: the serial counterfactual."""
    errors: int
    """Failures of our own, each of them a miss."""
    usage: Mapping[str, tuple[int, int]]
    """Input and output tokens of speculative model calls, by source."""
    verdicts: Mapping[str, int]
    """Guesses by verdict."""
    claims: Mapping[str, int]
    """Committed calls of planned turns, by how they were answered."""
    discards: Mapping[str, int]
    """Early runs that answered nothing, by reason."""
    idle: Mapping[str, int]
    """Turns in which nothing ran early, by reason."""
    tools: Mapping[str, ToolReport]
    sources: Mapping[str, SourceReport]
    """By source of guesses, those that were only scored included."""
    engine: Mapping[str, int]
    """What came of early results, answers and models where there is an engine, by verdict."""
    comparison: Comparison | None = None
    """Runs that were held out against those that were not; None before the first has ended, and
    where the policy neither holds out nor limits whole runs."""

    @property
    def saved_s(self) -> float:
        """Seconds saved: the serial counterfactual less what was observed."""
        return self.serial_s - self.observed_s

    @property
    def hit_rate(self) -> float | None:
        """Share of committed calls of planned turns that were hits; None before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None

    def __str__(self) -> str:
        """Say it in a few lines."""
        lines = [
            (
                f"{self.turns} turns, {self.guesses} early runs: {self.hits} hits, "
                f"{self.misses} misses, {self.wasted} wasted ({self.wasted_s:.2f} s)"
            ),
            (
                f"hidden {self.hidden_s:.2f} s; {self.observed_s:.2f} s instead of "
                f"{self.serial_s:.2f} s in planned turns"
            ),
        ]
        held = {name: n for name, n in self.verdicts.items() if name not in ("run", "shadow")}
        if held:
            reasons = ", ".join(f"{name} {count}" for name, count in sorted(held.items()))
            lines.append(f"guesses that did not run: {reasons}")
        if self.shadow_hits:
            lines.append(f"shadow: {self.shadow_hits} calls were guessed right")
        if self.errors:
            lines.append(f"{self.errors} failures of speculation itself, each of them a miss")
        if self.idle:
            reasons = ", ".join(f"{name} {count}" for name, count in sorted(self.idle.items()))
            lines.append(f"turns without early runs: {reasons}")
        if self.engine:
            others = sorted((name, n) for name, n in self.engine.items() if name != "continued")
            reasons = "".join(f", {name} {count}" for name, count in others)
            lines.append(f"engine: {self.engine.get('continued', 0)} turns continued{reasons}")
        lines += [
            f"  {name}: {tool.hits} hits, {tool.misses} misses, {tool.wasted} wasted, "
            f"hidden {tool.hidden_s:.2f} s"
            for name, tool in sorted(self.tools.items())
        ]
        lines += [
            f"  {name}: {source.right} of {source.guesses} guesses were right"
            for name, source in sorted(self.sources.items())
        ]
        if self.comparison is not None:
            lines.append(str(self.comparison))
        return "\n".join(lines)


@dataclass(slots=True)
class _Sums:
    counts: Counter[str] = field(default_factory=Counter[str])
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))


class Tally:
    """The observer behind `Speculation.report()`."""

    def __init__(self, seed: int = 0) -> None:
        """Start at zero; `seed` draws the runs that comparisons look at."""
        self._lock = threading.Lock()
        self.arms = Arms(seed)
        self._scored: Counter[tuple[str, bool]] = Counter()
        self._all = _Sums()
        self._tools: dict[str, _Sums] = {}
        self._by: dict[str, Counter[str]] = {
            kind: Counter() for kind in ("guess", "claim", "discarded", "idle", "engine")
        }
        self._usage: dict[str, tuple[int, int]] = {}

    def idle(self, reason: IdleReason) -> None:
        """Count a turn in which nothing ran early."""
        with self._lock:
            self._by["idle"][reason] += 1

    def run_ended(self, run: WatchedRun, now_s: float, *, succeeded: bool) -> None:
        """Take note of a whole graph run, held out or not."""
        self.arms.add(
            RunSample(
                arm="holdout" if run.held_out else "treated",
                took_s=max(0.0, now_s - run.started_s),
                turns=len(run.turns_at_s),
                turn_s=run.turn_s(now_s),
                cost_usd=run.cost_usd,
                success=succeeded,
            )
        )

    def on_event(self, event: Event) -> None:
        """Add one event."""
        with self._lock:
            if event.kind in self._by:
                self._by[event.kind][event.verdict] += 1
            match event.kind:
                case "guess" if event.verdict == "run":
                    self._add(event.tool, "guesses")
                case "claim":
                    self._claim(event)
                case "discarded":
                    self._add(event.tool, "wasted")
                    self._add(event.tool, "wasted_s", event.spent_s)
                case "scored":
                    self._scored[event.source, event.verdict == "right"] += 1
                case "turn_committed":
                    self._all.counts["turns"] += 1
                case "turn_ended" if event.verdict == "done":
                    self._turn(event)
                case "error":
                    self._all.counts["errors"] += 1
                case "usage" if event.usage is not None:
                    before = self._usage.get(event.source, (0, 0))
                    self._usage[event.source] = (
                        before[0] + event.usage[0],
                        before[1] + event.usage[1],
                    )
                case _:
                    pass

    def _claim(self, event: Event) -> None:
        if event.verdict == "shadow_hit":
            self._all.counts["shadow_hits"] += 1
            return
        self._add(event.tool, "hits" if event.verdict in SERVED else "misses")
        self._add(event.tool, "hidden_s", event.hidden_s)
        self._all.seconds["waited_s"] += event.waited_s

    def _turn(self, event: Event) -> None:
        started_s = event.at_s if event.started_s is None else event.started_s
        observed_s = event.at_s - started_s
        self._all.seconds["observed_s"] += observed_s
        self._all.seconds["serial_s"] += observed_s + event.hidden_s

    def _add(self, tool: str, what: str, amount: float | None = None) -> None:
        for sums in (self._all, self._tools.setdefault(tool, _Sums())):
            if amount is None:
                sums.counts[what] += 1
            else:
                sums.seconds[what] += amount

    def report(self) -> Report:
        """Return the sums so far."""
        comparison = self.arms.compare() if self.arms.runs else None
        with self._lock:
            counts, seconds = self._all.counts, self._all.seconds
            return Report(
                turns=counts["turns"],
                guesses=counts["guesses"],
                hits=counts["hits"],
                misses=counts["misses"],
                shadow_hits=counts["shadow_hits"],
                wasted=counts["wasted"],
                hidden_s=seconds["hidden_s"],
                wasted_s=seconds["wasted_s"],
                waited_s=seconds["waited_s"],
                observed_s=seconds["observed_s"],
                serial_s=seconds["serial_s"],
                errors=counts["errors"],
                usage=dict(self._usage),
                verdicts=dict(self._by["guess"]),
                claims=dict(self._by["claim"]),
                discards=dict(self._by["discarded"]),
                idle=dict(self._by["idle"]),
                tools={name: _tool(sums) for name, sums in self._tools.items()},
                sources={name: self._source(name) for name, _ in self._scored},
                engine=dict(self._by["engine"]),
                comparison=comparison,
            )

    def _source(self, name: str) -> SourceReport:
        right = self._scored[name, True]
        return SourceReport(guesses=right + self._scored[name, False], right=right)


def _tool(sums: _Sums) -> ToolReport:
    return ToolReport(
        guesses=sums.counts["guesses"],
        hits=sums.counts["hits"],
        misses=sums.counts["misses"],
        wasted=sums.counts["wasted"],
        hidden_s=sums.seconds["hidden_s"],
        wasted_s=sums.seconds["wasted_s"],
    )
