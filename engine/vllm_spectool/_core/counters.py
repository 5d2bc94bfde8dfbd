"""The counters and gauges a server shows, declared once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_spectool._core.outcomes import OUTCOMES

PREFIX = "vllm:spectool_"
"""As vLLM's own metrics are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """A counter, or one counter for each value of a label."""

    name: str
    about: str
    label: str | None = None
    values: tuple[str, ...] = ()
    kind: str = "counter"


TURNS = Instrument(
    name="turns",
    about="Turns of opted-in requests, by how they ended.",
    label="outcome",
    values=OUTCOMES,
)
ENTRIES = Instrument(
    name="entries",
    about="Entries of the tool cache, by what became of them.",
    label="event",
    values=("stored", "refused", "spent", "evicted", "expired", "deleted", "freed"),
)
RESOLVED = Instrument(name="resolved_calls", about="Calls that were answered in place.")
INJECTED = Instrument(name="injected_tokens", about="Tokens that were appended for them.")
COUNTERS = (TURNS, ENTRIES, RESOLVED, INJECTED)
DRAFTS = Instrument(
    name="drafts",
    about="Posted calls, by whether they could be drafted.",
    label="event",
    values=("made", "undraftable", "lost"),
)
DRAFTED = Instrument(
    name="drafted",
    about="What was offered to the model for verifying: requests, their steps, and tokens.",
    label="what",
    values=("requests", "steps", "tokens"),
)
DRAFT_COUNTERS = (DRAFTS, DRAFTED)
"""Shown where arguments are drafted. vLLM counts what of them was accepted."""

HELD_ENTRIES = Instrument(name="held_entries", about="Entries held now.", kind="gauge")
HELD_BYTES = Instrument(name="held_bytes", about="Bytes held now.", kind="gauge")
GAUGES = (HELD_ENTRIES, HELD_BYTES)


class Tally:
    """Counts; it knows no metrics library."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, instrument: Instrument, value: str = "", by: int = 1) -> None:
        """Count `by` more; `value` is the label's.

        Raises:
            ValueError: `value` is none of the instrument's.
        """
        if value not in (instrument.values or ("",)):
            msg = f"{instrument.name} has no value {value!r}; it has {instrument.values}"
            raise ValueError(msg)
        self._counts[instrument.name, value] += by

    def of(self, instrument: Instrument, value: str = "") -> int:
        """Return the count so far."""
        return self._counts[instrument.name, value]

    def snapshot(self) -> dict[str, int]:
        """Return what is not 0, by `name` or `name.value`."""
        return {
            f"{name}.{value}" if value else name: count
            for (name, value), count in sorted(self._counts.items())
            if count
        }

    def exposition(self, gauges: Mapping[str, float]) -> str:
        """Write all counters, and `gauges` by name, as Prometheus text."""
        lines: list[str] = []
        for each in COUNTERS:
            total = f"{PREFIX}{each.name}_total"
            lines += [f"# HELP {total} {each.about}", f"# TYPE {total} counter"]
            for value in each.values or ("",):
                label = f'{{{each.label}="{value}"}}' if each.label else ""
                lines.append(f"{total}{label} {self.of(each, value)}")
        for name, number in gauges.items():
            lines += [f"# TYPE {PREFIX}{name} gauge", f"{PREFIX}{name} {number}"]
        return "\n".join(lines) + "\n"
