"""One frozen event per decision; observers translate them."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

EventKind = Literal[
    "guess",
    "landed",
    "turn_committed",
    "claim",
    "call_ended",
    "discarded",
    "scored",
    "turn_ended",
    "run_ended",
    "usage",
    "engine",
    "error",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something speculation decided or saw.

    Only `tool`, `source` and `verdict` are fit for metric labels: `tool` is the name of a
    registered tool or `"other"`, never a name a model made up.
    """

    kind: EventKind
    at_s: float
    """Seconds on the clock of the run: the event loop's, or `time.monotonic`."""
    turn: int = 0
    """Number of the turn, counted up in this process; 0 where it is not known."""
    run: str = ""
    """Opaque name of the graph run: of turns that end, of calls nobody planned for, of runs."""
    arm: str = ""
    """Of a run that ended, `"treated"` or `"holdout"`, where some are held out; of
    `turn_committed`, `"shadow"` where guesses were only scored."""
    verdict: str = ""
    tool: str = ""
    source: str = ""
    position: int | None = None
    """Place of the committed call in its turn; of `turn_committed`, how many calls there are."""
    tools: tuple[str, ...] = ()
    """Of `turn_committed`: the tools of its calls, in their order."""
    barred: tuple[str, ...] | None = None
    """Of `turn_committed`: for each of its calls why no guess could have answered it
    (`undeclared`, `not_early`, `fenced`); empty where one could. None: nobody said."""
    weighed: str = ""
    """Of a guess that is only scored: its verdict, had speculation been on; empty: nobody said."""
    confidence: float | None = None
    started_s: float | None = None
    """When the early run, or the committed call, began."""
    spent_s: float = 0.0
    """Seconds the tool's body took: hidden, wasted or waited for."""
    waited_s: float = 0.0
    """Seconds a claim waited for its flight to land."""
    hidden_s: float = 0.0
    """Seconds of the tool's run that the claim did not have to wait for."""
    key_hash: str = ""
    """Short digest of the call key, for telling equal calls apart without showing them."""
    detail: str = ""
    """A human sentence, for logs only; may hold what a model or a user wrote."""
    usage: tuple[int, int] | None = None
    """Input and output tokens of a speculative model call; None when not reported."""
    cost_usd: float | None = None
    """Of a run that ended: what it cost in dollars; None when not known."""


def digest(key: str | None) -> str:
    """Return a short hash of a call key, which holds what a user or a model wrote."""
    if key is None:
        return ""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
