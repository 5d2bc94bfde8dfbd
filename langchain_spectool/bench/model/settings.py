"""What `spectool model` is asked, and the figures that all its answers have."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, Final

from langchain_spectool.bench.model.equations import Client
from langchain_spectool.bench.model.workload import RECORDED_SPREAD, Workload
from langchain_spectool.errors import SpectoolError

Found = dict[str, Any]
_DRAWN: Final = (
    "samples",
    "likeness",
    "calls",
    "closed_at",
    "turns",
    "depth",
    "generation_spread",
    "tool_spread",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What is known of the agent.

    Raises:
        SpectoolError: Something that is needed is missing, or a price lacks its other half.
    """

    generation_s: float | None = None
    """G; None if the traces tell."""
    tool_s: float | None = None
    """T; the same."""
    guess_s: float | None = None
    """g; the same."""
    alpha: float | None = None
    """Chance that one sample guesses a call right; the same."""
    traces: Sequence[str] = ()
    """An event log or recorded runs, files or folders."""
    tools: str | None = None
    """A list of tools for the recorded runs."""
    samples: int = 1
    likeness: float = 1.0
    calls: int = 1
    closed_at: tuple[float, ...] = ()
    turns: int | None = None
    """Turns with calls before one that closes the run; None: no turn closes it."""
    depth: int = 1
    generation_spread: float = RECORDED_SPREAD
    tool_spread: float = 0.25
    cost_s: float = 0.0
    """Seconds that guessing adds to each turn."""
    cost_usd: float = 0.0
    """What guessing costs each turn."""
    second_usd: float | None = None
    """What a second less of waiting is worth."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what goes together."""
        if not 0 <= self.cost_usd < inf or not 0 < (self.second_usd or 1.0) < inf:
            msg = f"prices are above 0, got {self.cost_usd!r} and {self.second_usd!r}"
            raise SpectoolError(msg)
        if self.cost_usd and not self.second_usd:
            msg = "a cost in dollars needs what a second is worth: add --second-usd"
            raise SpectoolError(msg)
        if self.traces:
            self._check_traces()
            return
        given = {"--G": self.generation_s, "--T": self.tool_s, "--g": self.guess_s}
        missing = [
            name for name, value in {**given, "--alpha": self.alpha}.items() if value is None
        ]
        if missing:
            msg = f"{', '.join(missing)} missing: give all of --G --T --g --alpha, or --traces"
            raise SpectoolError(msg)

    def _check_traces(self) -> None:
        """Refuse what only drawn turns have: recorded ones are as they are."""
        for each in fields(self):
            if each.name in _DRAWN and getattr(self, each.name) != each.default:
                msg = f"{each.name} is for turns that are drawn: leave it out with --traces"
                raise SpectoolError(msg)

    @property
    def workload(self) -> Workload:
        """What the turn model draws; without traces only."""
        return Workload(
            generation_s=self.generation_s or 0.0,
            tool_s=self.tool_s or 0.0,
            guess_s=self.guess_s or 0.0,
            accuracy=self.alpha or 0.0,
            samples=self.samples,
            likeness=self.likeness,
            calls=len(self.closed_at) or self.calls,
            closed_at=self.closed_at,
            turns=self.turns or 1,
            closing=self.turns is not None,
            depth=self.depth,
            generation_spread=self.generation_spread,
            tool_spread=self.tool_spread,
        )


def break_even(client: Client, options: ModelOptions) -> Found:
    """Return where guessing stops to pay, with what it costs in money as seconds of waiting."""
    price = options.second_usd
    money_s = options.cost_usd / price if price else 0.0
    priced = replace(client, cost_s=client.cost_s + money_s)
    cost_s = priced.cost_s_to_break_even
    return {
        "alpha": priced.alpha_to_break_even,
        "g_s": priced.guess_s_to_break_even,
        "cost_s": cost_s,
        "cost_usd": None if price is None else max(0.0, cost_s - client.cost_s) * price,
    }


def closed_form(client: Client) -> Found:
    """Return the figures of equation (2)."""
    return {
        "speedup": client.speedup,
        "bound": client.bound,
        "ceiling": client.ceiling,
        "saving": client.saving,
        "turn_s": {"plain": client.plain_s, "speculative": client.speculative_s},
    }


def said_break_even(found: Found, closed: float, drawn: float) -> str:
    """Say in a sentence where guessing stops to pay.

    Args:
        found: What `break_even` returned.
        closed: Share of the time that equation (2) says is saved, at the means.
        drawn: The same of the turn model.
    """
    if found["alpha"] is None or found["g_s"] is None:
        if closed <= 0 < drawn:
            return (
                f"At the means guessing does not pay, turn by turn it saves {100 * drawn:.1f} %: "
                "some turns are longer than the mean."
            )
        if not found["cost_s"]:
            return "Guessing does not pay here: no right guess comes before the model's answer."
        return f"Guessing does not pay here: it may cost {found['cost_s']:.3f} s a turn at most."
    odds = f"with alpha above {found['alpha']:.3f}"
    if not found["alpha"]:
        odds = "with any right guess, as guessing costs nothing here"
    text = (
        f"It pays {odds}, with g below {found['g_s']:.3f} s, and while guessing costs less than "
        f"{found['cost_s']:.3f} s of waiting a turn"
    )
    usd = found["cost_usd"]
    return f"{text}." if usd is None else f"{text}, or ${usd:.6f}."
