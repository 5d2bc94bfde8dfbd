"""Texts are equal exactly when values are equal in value and type."""

import gc
import math
import sys
import types
import zoneinfo
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, HttpUrl, PrivateAttr, SecretStr, TypeAdapter

from langchain_spectool._core.encoding import attempt, encode, unique_name


class Color(Enum):
    RED = 1
    GREEN = 2


class Size(IntEnum):
    SMALL = 1


class Access(Flag):
    READ = 1
    WRITE = 2


class Point(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: Any
    y: Any = 0
    _note: Any = PrivateAttr(default=None)


class OtherPoint(BaseModel):
    x: Any
    y: Any = 0


@dataclass
class Pair:
    left: Any
    right: Any = 0


@dataclass
class OtherPair:
    left: Any
    right: Any = 0


@dataclass(slots=True)
class Slotted:
    left: Any
    right: Any = 0


def zone_datetime(zone: tzinfo, **changes: Any) -> datetime:
    """Return one local time in `zone`."""
    return datetime(2025, 10, 26, 2, 30, tzinfo=zone).replace(**changes)


PARIS = zoneinfo.ZoneInfo("Europe/Paris")
ISO = TypeAdapter(datetime)

DISTINCT: list[Any] = [
    *(None, "None", "n", "", True, False, 1, 1.0, "1", -1, 0, 0.0, -0.0, 10**30, 1e30),
    *(math.inf, -math.inf, "inf", 0.1, 0.1 + 2**-56, b"1", b"", "true", "s1:1", "i0x1;"),
    *([], (), {}, set(), frozenset(), [[]], [()], [{}], [None], [1], (1,), {1}, frozenset({1})),
    *([True], {True}, [1, 2], [2, 1], ["1"], ["12", "3"], ["1", "23"], [["1"], "2"], [["1", "2"]]),
    *({"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": True}, {"b": 1}, {"a": 1, "b": 2}, [["a", 1]]),
    *({1: 1}, {"1": 1}, {True: 1}, {1.0: 1}, {None: 1}, {(1,): 1}, {"a": {}}, {"a": []}),
    *("Z\u00fcrich", "Zu\u0308rich", "\ud83d", "\ud83e", "\u200bpay", "pay", "a", "a "),
    *(Decimal(1), Decimal("1.0"), Decimal(-1), Decimal("Infinity"), Decimal("-Infinity")),
    *(date(2025, 1, 1), datetime(2025, 1, 1), time(0, 0), timedelta(1), timedelta(seconds=1)),  # noqa: DTZ001
    *(timedelta(microseconds=1), datetime(2025, 1, 1, tzinfo=UTC), time(0, 0, tzinfo=UTC)),
    *(zone_datetime(PARIS), zone_datetime(PARIS, fold=1), zone_datetime(UTC)),
    zone_datetime(timezone(timedelta(hours=1))),
    zone_datetime(timezone(timedelta(hours=1), "CET")),
    ISO.validate_python("2025-10-26T02:30:00Z"),
    ISO.validate_python("2025-10-26T02:30:00+01:00"),
    *(UUID(int=1), UUID(int=2), PurePosixPath("a"), PureWindowsPath("a"), Path("a"), Path("b")),
    *(Color.RED, Color.GREEN, Size.SMALL, Access.READ),
    *(AnyUrl("https://x.test"), HttpUrl("https://x.test"), HttpUrl("https://x.test/a")),
    *(Point(x=1), Point(x=1.0), Point(x=1, y=1), Point(x=1, z=1), OtherPoint(x=1)),
    *(Pair(1), Pair(1.0), Pair(1, 1), OtherPair(1), Slotted(1), Slotted(2)),
]


def test_distinct_values_have_distinct_texts() -> None:
    """No two values of the list share a text, at the top or inside another value."""
    for wrap in (lambda value: value, lambda value: [value], lambda value: {"k": value}):
        texts = [encode(wrap(value)) for value in DISTINCT]
        assert None not in texts
        assert len(set(texts)) == len(DISTINCT)


EQUAL: list[tuple[Any, Any]] = [
    ({"a": 1, "b": [1, {"x": 1, "y": 2}]}, {"b": [1, {"y": 2, "x": 1}], "a": 1}),
    ({"b", "a", "c"}, {"c", "b", "a"}),
    (frozenset("abc"), frozenset("cba")),
    (10**5000, 10**5000),
    (Point(x=1), Point(x=1, y=0)),
    (Pair([1]), Pair([1], 0)),
    (zone_datetime(UTC), zone_datetime(timezone(timedelta(0)))),
    ({Color.RED: [Color.GREEN]}, {Color.RED: [Color.GREEN]}),
    (zone_datetime(PARIS), zone_datetime(zoneinfo.ZoneInfo.no_cache("Europe/Paris"))),
]


@pytest.mark.parametrize(("one", "other"), EQUAL, ids=[str(n) for n in range(len(EQUAL))])
def test_equal_values_have_one_text(one: Any, other: Any) -> None:
    """Order in mappings and sets, and how an equal value came about, leave no trace."""
    assert encode(one) is not None
    assert encode(one) == encode(other)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(scalars, inner, max_size=3)
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Say by hand what equal in value and type means."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        rest = list(other.items())
        for item in one.items():
            match = next((found for found in rest if same(item, found)), None)
            if match is None:
                return False
            rest.remove(match)
        return not rest
    return repr(one) == repr(other)


@given(trees, trees)
def test_texts_are_equal_exactly_for_same_values(one: Any, other: Any) -> None:
    """The text is as fine and as coarse as a comparison written by hand."""
    assert (encode(one) == encode(other)) == same(one, other)
    assert encode(one) == encode(one)


@given(st.lists(trees, max_size=3), st.lists(trees, max_size=3))
def test_joined_texts_stay_apart(one: list[Any], other: list[Any]) -> None:
    """Each text tells its own end: lists of values are equal only item by item."""
    texts = ["".join(map(str, map(encode, values))) for values in (one, other)]
    assert (texts[0] == texts[1]) == same(one, other)


class Hostile:
    """Raises at every touch."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError


class HostileMeta(type):
    def __hash__(cls) -> int:
        raise GeneratorExit


class OfHostileMeta(metaclass=HostileMeta):
    pass


class Text(str):
    __slots__ = ()


class Zone(tzinfo):
    def utcoffset(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _moment: datetime | None) -> None:
        return None

    def tzname(self, _moment: datetime | None) -> str:
        return "zone"


class SlottedModel(BaseModel):
    __slots__ = ("hidden",)
    x: int


class StatefulBase:
    pass


@dataclass
class Inheriting(StatefulBase):
    left: Any


@dataclass
class HalfHidden:
    __slots__ = ("hidden", "left")
    left: Any


@dataclass
class Unset:
    left: Any = field(init=False)


class NotADataclass(Pair):
    pass


def a_cycle() -> list[Any]:
    """Return a list that holds itself."""
    items: list[Any] = []
    items.append({"a": items})
    return items


def nested(levels: int) -> Any:
    """Return a list in a list and so on."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def doubled(times: int) -> Any:
    """Return a small object that is huge when written out."""
    value: Any = {1}
    for _ in range(times):
        value = [value, value]
    return value


def from_a_file() -> zoneinfo.ZoneInfo:
    """Return a zone whose key is a claim."""
    root = next(path for path in zoneinfo.TZPATH if (Path(path) / "UTC").exists())
    with (Path(root) / "UTC").open("rb") as source:
        return zoneinfo.ZoneInfo.from_file(source, key="Europe/Paris")


REFUSED: dict[str, Any] = {
    "nan": math.nan,
    "nested nan": {"a": [math.nan]},
    "decimal nan": Decimal("NaN"),
    "object": object(),
    "hostile": Hostile(),
    "hostile class": OfHostileMeta(),
    "hostile in a dict": {"a": Hostile()},
    "secret": SecretStr("x"),
    "subclass": Text("a"),
    "subclass as key": {Text("a"): 1},
    "complex": 1j,
    "class": int,
    "function": len,
    "bytearray": bytearray(b"a"),
    "flags": Access.READ | Access.WRITE,
    "zone of one's own": zone_datetime(Zone()),
    "time zone of one's own": time(0, 0, tzinfo=Zone()),
    "slotted model": SlottedModel(x=1),
    "stateful base": Inheriting(1),
    "hidden slot": HalfHidden(1),
    "unset field": Unset(),
    "no dataclass itself": NotADataclass(1),
    "cycle": a_cycle(),
    "deep": nested(102),
    "very deep": nested(100_000),
    "doubled": doubled(60),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_exact_text_is_refused(name: str) -> None:
    """The answer is None, whatever the object does."""
    assert encode(REFUSED[name]) is None


def test_a_zone_read_from_a_file_is_refused() -> None:
    """Its key does not say what it does."""
    if not any((Path(path) / "UTC").exists() for path in zoneinfo.TZPATH):
        pytest.skip("no time zone files on this machine")
    assert encode(zone_datetime(from_a_file())) is None


def test_a_hundred_levels_are_written() -> None:
    """The limit is far above what a call holds."""
    assert encode(nested(101)) is not None


def test_attributes_beside_the_fields_count() -> None:
    """Private, extra and later attributes are state that a body can see."""
    plain, noted, marked = Point(x=1), Point(x=1), Pair(1)
    noted._note = "seen"
    vars(marked)["mark"] = 1
    assert encode(plain) != encode(noted)
    assert encode(marked) != encode(Pair(1))


def test_exact_tells_set_fields_apart() -> None:
    """A default that was given and one that was not differ with `exact` only."""
    given_, left = {"p": [Point(x=1, y=0)]}, {"p": [Point(x=1)]}
    assert encode(given_) == encode(left)
    assert encode(given_, exact=True) != encode(left, exact=True)
    assert encode(left, exact=True) == encode({"p": [Point(x=1)]}, exact=True)


def local_class(tag: str) -> type[Enum]:
    """Return one of many classes with one qualified name."""

    class Local(Enum):
        ITEM = tag

    return Local


def test_classes_of_one_name_stay_apart() -> None:
    """Classes made in a function share their name, not their text, dead or alive."""
    texts: set[str | None] = set()
    for tag in "abc":
        local = local_class(tag)
        assert encode(local["ITEM"]) == encode(local["ITEM"])
        texts.add(encode(local["ITEM"]))
        del local
        gc.collect()
    assert len(texts) == 3
    assert None not in texts


class Holder:
    inner: ClassVar[type] = Color

    def method(self) -> None:
        """Do nothing."""

    class Nested:
        """Has a dot in its qualified name."""


def test_a_name_that_leads_back_is_the_same_in_every_process() -> None:
    """Module and qualified name are enough where they find the very object."""
    assert unique_name(Holder.Nested) == f"{__name__}:Holder.Nested"
    assert unique_name(Holder.Nested) == unique_name(Holder.Nested)
    assert unique_name(math.sqrt) == "math:sqrt"


def test_names_that_lead_elsewhere_get_a_serial_number() -> None:
    """Bound methods, closures, instances and what a reload replaced have no name for ever."""
    holder = Holder()
    names = [unique_name(holder.method), unique_name(holder), unique_name(lambda: None)]
    assert all("#" in name for name in names)
    assert unique_name(holder) != unique_name(holder)


def test_a_replaced_function_keeps_its_name_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that is run again defines another function under the same name."""
    module = types.ModuleType("reloaded_for_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names: list[str] = []
    for _ in range(2):
        exec("def look(): ...", vars(module))  # noqa: S102
        names.append(unique_name(module.look))
    assert names[0] == "reloaded_for_a_test:look"
    assert names[1].startswith("reloaded_for_a_test:look#")


def test_main_never_names_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every script is `__main__`."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec("class Found: ...", vars(module))  # noqa: S102
    assert "#" in unique_name(module.Found)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_only_the_ends_of_a_program_pass(error: type[BaseException]) -> None:
    """Anything else that is raised is an answer, not an error."""

    def end() -> None:
        raise error

    def stop() -> None:
        raise GeneratorExit

    assert attempt(stop) is None
    with pytest.raises(error):
        attempt(end)
