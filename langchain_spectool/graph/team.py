"""The sources of guesses of one Speculation, by what they can do."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from langchain_spectool._core.ports import Forker, Learner, Speculator, StreamSpeculator
from langchain_spectool._core.prices import Prices
from langchain_spectool._core.verdicts import IdleReason

Source = Speculator | StreamSpeculator


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who samples, who listens to the stream, and who learns; one source may do all of it."""

    sources: tuple[Source, ...]
    sampling: tuple[Speculator, ...]
    listening: tuple[StreamSpeculator, ...]
    learning: tuple[Learner, ...]
    forking: tuple[Forker, ...]
    models: Mapping[str, str]
    """By source, the model it asks; without those that ask none."""

    @property
    def force(self) -> bool:
        """Whether one of them makes the model stream."""
        return any(source.force for source in self.listening)

    @property
    def chains(self) -> bool:
        """Whether one of them goes on from early results."""
        return any(depth_of(source) > 1 for source in self.sampling)

    @property
    def deaf(self) -> IdleReason:
        """Why nobody guesses in a turn without samples that is not listened to."""
        return "not_streaming" if self.listening else "no_speculators"


def team_of(sources: Sequence[Source], prices: Prices | None = None) -> Team:
    """Return the team of `sources` and of the members they speak for.

    Raises:
        ValueError: One of them is no speculator.
    """
    if isinstance(sources, str):
        msg = f"`speculators` must be a list of speculators, got {sources!r}: use `draft=`"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
    for source in cast("Sequence[object]", sources):
        if not isinstance(source, (Speculator, StreamSpeculator)):
            msg = f"a speculator has `guess` and `aguess`, or `listen`; {source!r} has neither"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
        samples = getattr(source, "samples", 0)
        if not isinstance(samples, int):
            msg = f"`samples` of a speculator must be a whole number, got {samples!r} of {source!r}"
            raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
    everyone = [*_with_members(sources)]
    return Team(
        sources=(*sources,),
        sampling=tuple(s for s in sources if isinstance(s, Speculator) and s.samples > 0),
        listening=tuple(s for s in everyone if isinstance(s, StreamSpeculator)),
        learning=tuple(s for s in sources if isinstance(s, Learner)),
        forking=tuple(s for s in everyone if isinstance(s, Forker) and s.fork_after > 0),
        models=_models(everyone, prices or Prices({})),
    )


def _models(sources: Iterable[Source], prices: Prices) -> dict[str, str]:
    """Return the model that each label asks: the dearest, where several have one label."""
    asked: dict[str, list[str]] = {}
    for source in sources:
        model: object = getattr(source, "model_name", "")
        if isinstance(model, str) and model:
            asked.setdefault(source.name, []).append(model)
    usual = (1000, 100)
    return {
        name: max(models, key=lambda model: prices.cost_usd(model, usual) or 0.0)
        for name, models in asked.items()
    }


def _with_members(sources: Iterable[Source]) -> Iterator[Source]:
    """Yield `sources` and, however deep, those they speak for."""
    for source in sources:
        yield source
        yield from _with_members(getattr(source, "members", ()))


def depth_of(source: object) -> int:
    """Return how many calls ahead `source` guesses: 1, unless it is a chain."""
    return _whole(source, "depth", 1)


def is_free(source: object) -> bool:
    """Say whether asking `source` costs nothing, as it says itself; of a group, all must."""
    members = cast("Sequence[object]", getattr(source, "members", ()))
    return all(map(is_free, members)) if members else bool(getattr(source, "free", False))


def samples_alike(source: object) -> bool:
    """Say whether one sample of `source` is as good as another: they are not several members'."""
    members = cast("Sequence[object]", getattr(source, "members", ()))
    return len(members) < 2 and all(map(samples_alike, members))  # noqa: PLR2004 - several


def warm_up_of(source: object) -> int:
    """Return how many guesses per tool `source` wants scored before any runs."""
    members = cast("Iterable[object]", getattr(source, "members", ()))
    return max((_whole(source, "warm_up", 0), *map(warm_up_of, members)))


def _whole(source: object, name: str, usual: int) -> int:
    """Return an optional attribute of a source: its `usual` value, if it is no whole number."""
    value: object = getattr(source, name, usual)
    return value if isinstance(value, int) else usual
