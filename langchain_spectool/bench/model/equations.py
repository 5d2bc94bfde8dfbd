"""The closed forms of arXiv 2512.15834, as functions of times in seconds.

Numbers in brackets are the paper's equations. The client side (section 3.1.1) assumes what
`turn_model` does not: every turn makes exactly one read-only call, all turns take the same time,
hits do not depend on the times, no turn closes the run without a call, and `g < G`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean

from langchain_spectool.errors import SpectoolError


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One turn of the client-side algorithm.

    Raises:
        SpectoolError: A value is outside the range its field states.
    """

    generation_s: float
    """G: seconds the main model writes, above 0."""
    tool_s: float
    """T: seconds the tool takes, above 0."""
    guess_s: float
    """g: seconds until the guess, 0 or more. The paper wants it above 0; a source without a model
    takes next to nothing."""
    alpha: float
    """Share of the calls that are guessed right, from 0 to 1."""
    cost_s: float = 0.0
    """What guessing costs each turn, right or wrong, in seconds of waiting; not in the paper."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, value in (("G", self.generation_s), ("T", self.tool_s)):
            if not 0 < value < inf:
                msg = f"{name} must be a number of seconds above 0, got {value!r}"
                raise SpectoolError(msg)
        for name, value in (("g", self.guess_s), ("the cost of a guess", self.cost_s)):
            if not 0 <= value < inf:
                msg = f"{name} must be a number of seconds of 0 or more, got {value!r}"
                raise SpectoolError(msg)
        if not 0 <= self.alpha <= 1:
            msg = f"alpha must be a share from 0 to 1, got {self.alpha!r}"
            raise SpectoolError(msg)

    @property
    def plain_s(self) -> float:
        """Seconds of the turn without speculation: G + T."""
        return self.generation_s + self.tool_s

    @property
    def hit_s(self) -> float:
        """Seconds of a turn whose call was guessed: max(G, g + T)."""
        return max(self.generation_s, self.guess_s + self.tool_s)

    @property
    def hidden_s(self) -> float:
        """Seconds a hit spares: min(T, G - g), and none once g exceeds G.

        (2) has a guess that comes after the model's answer make the turn longer. Here it does
        not: the call has started by then, and the guess is a miss.
        """
        return max(0.0, self.plain_s - self.hit_s)

    @property
    def speculative_s(self) -> float:
        """Mean seconds of the turn with speculation: the denominator of (2), with the cost."""
        return self.plain_s - self.alpha * self.hidden_s + self.cost_s

    @property
    def speedup(self) -> float:
        """S(alpha) of (2)."""
        return self.plain_s / self.speculative_s

    @property
    def saving(self) -> float:
        """Share of the time saved: 1 - 1 / S."""
        return 1 - self.speculative_s / self.plain_s

    @property
    def bound(self) -> float:
        """S_max: the speed-up at alpha = 1 and no cost; S rises strictly up to it (Lemma 1)."""
        return self.plain_s / (self.plain_s - self.hidden_s)

    @property
    def ceiling(self) -> float:
        """The most S_max can be, whatever the split of G + T: 2 - 2g / (G + g + T), below 2.

        It is reached where G = g + T.
        """
        guess_s = min(self.guess_s, self.generation_s)  # a later guess hides nothing, like this one
        return 2 - 2 * guess_s / (self.plain_s + guess_s)

    @property
    def alpha_to_break_even(self) -> float | None:
        """The alpha above which guessing is worth its cost; None if no alpha is."""
        if not self.cost_s:
            return 0.0 if self.hidden_s else None
        needed = self.cost_s / self.hidden_s if self.hidden_s else inf
        return needed if needed <= 1 else None

    @property
    def guess_s_to_break_even(self) -> float | None:
        """The g below which guessing is worth its cost; None if no g is."""
        if not self.alpha or self.cost_s > self.alpha * min(self.tool_s, self.generation_s):
            return None
        return self.generation_s - self.cost_s / self.alpha

    @property
    def cost_s_to_break_even(self) -> float:
        """The cost of guessing per turn below which it is worth it, in seconds of waiting."""
        return self.alpha * self.hidden_s


def jensen_gap(times: Sequence[tuple[float, float]], guess_s: float, alpha: float) -> float:
    """Return by what share of the time (2) at the means promises too much.

    What a hit hides, min(T, G - g), is concave, so that its mean lies below its value at the means.

    Args:
        times: G and T of each call, in seconds.
        guess_s: g.
        alpha: Share of the calls that are guessed right, independently of their times.
    """
    hidden_s = fmean(_hidden_s(generation_s, tool_s, guess_s) for generation_s, tool_s in times)
    mean_g_s, mean_t_s = (fmean(time[part] for time in times) for part in (0, 1))
    promised_s = _hidden_s(mean_g_s, mean_t_s, guess_s)
    return alpha * (promised_s - hidden_s) / (mean_g_s + mean_t_s)


def _hidden_s(generation_s: float, tool_s: float, guess_s: float) -> float:
    return max(0.0, min(tool_s, generation_s - guess_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTurn:
    """What one turn adds on the engine side (section 3.2.1)."""

    reasoning_tokens: float
    """R_i: tokens written before the call."""
    call_tokens: float
    """t_i: tokens of the call."""
    output_tokens: float
    """to_i: tokens of the tool's output."""
    tool_s: float
    """T_i: seconds the tool takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A sequence of K turns on one engine.

    Raises:
        SpectoolError: A rate is negative or not finite, or there are no turns.
    """

    turns: Sequence[EngineTurn]
    prompt_tokens: float
    """X_1: tokens of the first prompt."""
    overhead_s: float
    """o: seconds of API and eviction, each way."""
    prefill_s: float
    """phi: seconds per prefilled token."""
    decode_s: float
    """delta: seconds per decoded token."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.turns:
            msg = "an engine's sequence has at least one turn"
            raise SpectoolError(msg)
        rates = (self.prompt_tokens, self.overhead_s, self.prefill_s, self.decode_s)
        if not all(isfinite(rate) and rate >= 0 for rate in rates):
            msg = f"tokens and seconds must be 0 or more, got {rates!r}"
            raise SpectoolError(msg)

    @property
    def vanilla_s(self) -> float:
        """(4): every turn prefills all that came before it.

        X_{i+1} = X_i + t_i + to_i.
        """
        prefilled = context = self.prompt_tokens
        for turn in self.turns[:-1]:
            context += turn.call_tokens + turn.output_tokens
            prefilled += context
        return self._seconds(prefilled)

    @property
    def cached_s(self) -> float:
        """(5): a prefix cache prefills every token once.

        The last turn's call and output are among them; (4) leaves them to the turn after it.
        """
        return self._seconds(self._once)

    def speculative_s(self, alpha: float) -> float:
        """Return (6): `alpha` of the calls stay in the engine and are checked in one decode step.

        Their tools take no time: (6) assumes that the output is there before the model has
        written its reasoning, T_i < delta R_i. With alpha = 0 it is (5).
        """
        count = len(self.turns)
        reasoning = sum(turn.reasoning_tokens for turn in self.turns)
        called = sum(turn.call_tokens for turn in self.turns)
        return (
            (1 - alpha) * 2 * count * self.overhead_s
            + self.prefill_s * self._once
            + self.decode_s * (alpha * count + reasoning + (1 - alpha) * called)
            + (1 - alpha) * sum(turn.tool_s for turn in self.turns)
        )

    @property
    def _once(self) -> float:
        added = sum(turn.call_tokens + turn.output_tokens for turn in self.turns)
        return self.prompt_tokens + added

    def _seconds(self, prefilled: float) -> float:
        decoded = sum(turn.reasoning_tokens + turn.call_tokens for turn in self.turns)
        return (
            2 * len(self.turns) * self.overhead_s
            + self.prefill_s * prefilled
            + self.decode_s * decoded
            + sum(turn.tool_s for turn in self.turns)
        )
