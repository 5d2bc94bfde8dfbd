"""What the measured figures have to keep: value, limit, and whether they do."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

MODEL_GAP_POINTS: Final = 0.5
COLUMN_GAP_POINTS: Final = 2.0
GAIN_POINTS: Final = 0.0
SCALE_GAP_POINTS: Final = 3.0
MEMORY_KB: Final = 20.0
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperBar:
    """A measured value and its limit; of an interval, the end that decides."""

    name: str
    value: float
    limit: float
    sense: Literal["<=", ">"] = "<="

    @property
    def met(self) -> bool:
        """Whether the value keeps its limit."""
        return self.value <= self.limit if self.sense == "<=" else self.value > self.limit

    def as_json(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            "sense": self.sense,
            "met": self.met,
        }


def bars_of(found: Mapping[str, Any]) -> list[PaperBar]:
    """Return the bars of those parts that were measured."""
    return [*_slice_bars(found), *_scale_bars(found)]


def _slice_bars(found: Mapping[str, Any]) -> Iterator[PaperBar]:
    if found["slice"] is None:
        return
    rows = [*found["slice"]["rows"], *found["slice"]["column_rows"]]
    yield PaperBar(
        name="max_gap_to_turn_model_points",
        value=_farthest(
            (row["gap_low"], row["gap_high"]) for row in rows if row["arm"] == "client_side"
        ),
        limit=MODEL_GAP_POINTS,
    )
    yield PaperBar(
        name="paper_column_gap_points",
        value=_farthest(
            (point["low"] - point["paper"], point["high"] - point["paper"])
            for point in found["calibration"]["points"]
        ),
        limit=COLUMN_GAP_POINTS,
    )
    yield PaperBar(
        name="gain_over_client_side_points",
        value=round(min(gain["low"] for gain in found["slice"]["gains"]), _DIGITS),
        limit=GAIN_POINTS,
        sense=">",
    )


def _scale_bars(found: Mapping[str, Any]) -> Iterator[PaperBar]:
    if found["scale"] is None:
        return
    real = [row for row in found["scale"]["rows"] if row["clock"] == "real"]
    few, many = real[0], real[-1]
    # Above saturation the times say nothing: throughput and processor time stand in the row.
    if not many["saturated"]:
        yield PaperBar(
            name=f"saving_{many['agents']}_vs_{few['agents']}_points",
            value=_farthest([(many["low"] - few["saved"], many["high"] - few["saved"])]),
            limit=SCALE_GAP_POINTS,
        )
    yield PaperBar(
        name="memory_kb_per_turn",
        value=found["scale"]["memory"]["kb_per_turn"],
        limit=MEMORY_KB,
    )


def _farthest(intervals: Iterable[tuple[float, float]]) -> float:
    return round(max(abs(end) for interval in intervals for end in interval), _DIGITS)
