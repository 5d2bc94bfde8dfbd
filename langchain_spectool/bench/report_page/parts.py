"""What a page is made of: headlines and parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_spectool.bench.report_page.figures import Figure
from langchain_spectool.bench.report_page.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One number, and the set-up it holds for."""

    about: str
    value: str
    setup: str
    tiles: Sequence[tuple[str, str]] = ()
    banner: str = ""
    """What must be known before the number is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A section: what it says, then its figures, then its tables."""

    id: str
    title: str
    sentences: Sequence[str] = ()
    points: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
