"""One text per Python value: equal texts mean equal values of equal types."""

import sys
from abc import ABC
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import EnumMeta
from itertools import count
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import FunctionType, NoneType
from typing import Any, Final, Generic, Never, Protocol, TypeVar, TypeVarTuple, cast
from uuid import UUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from pydantic import AnyHttpUrl, AnyUrl, BaseModel, HttpUrl
from pydantic_core import TzInfo

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_MOST_LEVELS: Final = 100
MOST_ITEMS: Final = 100_000
"""Bounds the work on values that hold one object many times over without being cyclic."""

kind_of: Callable[[object], type[object]] = type
"""`type` under another name: a type checker takes no note of what it says of a value."""


def encode(value: object, *, exact: bool = False) -> str | None:
    """Write `value` as text that no other value has.

    1, 1.0, "1" and True differ, as do 0.0 and -0.0, a list and a tuple; the order of a dict or a
    set does not count. Types are exact: a subclass is not what it is derived from.

    Args:
        value: Any object.
        exact: Tell pydantic models apart by the fields that were set, too.

    Returns:
        None where no exact text exists: NaN, secrets, unknown types, cycles, more than 100 levels
        or 100,000 items. Nothing is raised, whatever the objects inside do.
    """
    return attempt(write, value, exact)


def attempt(function: Callable[[*_Ts], _T], *args: *_Ts) -> _T | None:
    """Call `function`, which may run code of others; None for whatever it raises.

    Only KeyboardInterrupt and SystemExit pass.
    """
    try:
        return function(*args)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a validator's cancellation is no cancellation of ours
        return None


def write(value: Any, exact: bool = False) -> str:  # noqa: ANN401, FBT001, FBT002 - for `attempt`
    """Do as `encode` does, but raise ValueError, or what the objects inside raise, for None."""
    kind = kind_of(value)
    flat = _flat(value) if kind is dict else None
    return _Encoder(exact=exact).text(value) if flat is None else flat


def _flat(value: dict[Any, Any]) -> str | None:
    """Write what most calls are, strings and numbers by name, as `_Encoder` would, only faster."""
    entries: list[str] = []
    for key, item in value.items():
        kind = kind_of(item)
        if type(key) is not str:
            return None
        if kind is str:
            entries.append(f"s{len(key)}:{key}s{len(item)}:{item}")
        elif kind is int:
            entries.append(f"s{len(key)}:{key}i{hex(item)};")
        elif kind in _SCALARS:
            entries.append(f"s{len(key)}:{key}{_SCALARS[kind](item)}")
        else:
            return None
    entries.sort()
    return f"{{{''.join(entries)}}}"


class _Encoder:
    """Writes one value; every text starts with its type's letter and tells its own end."""

    __slots__ = ("_exact", "_room")

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._room = MOST_ITEMS

    def text(self, value: object, level: int = 0) -> str:
        kind = type(value)
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        if level > _MOST_LEVELS:
            _refuse()
        if kind is dict:
            return self._mapping(cast("dict[object, object]", value), level + 1)
        brackets = _BRACKETS.get(kind)
        if brackets is not None:
            return self._items(cast("Iterable[object]", value), brackets, level + 1)
        return self._object(value, kind, level + 1)

    def _mapping(self, value: dict[object, object], level: int) -> str:
        self._take(len(value))
        text = self.text
        entries = [text(key, level) + text(item, level) for key, item in value.items()]
        entries.sort()
        return f"{{{''.join(entries)}}}"

    def _items(self, value: Iterable[object], brackets: tuple[str, str, bool], level: int) -> str:
        opening, closing, ordered = brackets
        texts = [self.text(item, level) for item in value]
        self._take(len(texts))
        return opening + "".join(texts if ordered else sorted(texts)) + closing

    def _take(self, items: int) -> None:
        self._room -= items + 1
        if self._room < 0:
            _refuse()

    def _object(self, value: object, kind: type, level: int) -> str:
        if BaseModel in kind.__mro__:
            letter, state = "m", self._model_state(value, kind)
        elif "__dataclass_fields__" in vars(kind):
            letter, state = "k", _dataclass_state(value, kind)
        elif isinstance(kind, EnumMeta):
            letter, state = "e", _member_name(value, kind)
        else:
            _refuse()
        return letter + _string(unique_name(kind)) + self.text(state, level)

    def _model_state(self, value: object, kind: type) -> object:
        if any(vars(base).get("__slots__") for base in kind.__mro__ if base is not BaseModel):
            _refuse()
        # Past any `__getattribute__` of the model's own.
        read: Callable[[object, str], object] = object.__getattribute__
        return (
            read(value, "__dict__"),
            read(value, "__pydantic_extra__"),
            read(value, "__pydantic_private__"),
            read(value, "__pydantic_fields_set__") if self._exact else None,
        )


def unique_name(thing: object) -> str:
    """Return a name that no other class or function of this process has or had.

    It is module and qualified name, the same in every process, where these lead back to `thing`
    or to the tool made of it; otherwise a serial number is added, valid in this process only.
    """
    if not isinstance(thing, type | FunctionType):
        return _new_name(thing)
    name = _names.get(thing)
    return _names.setdefault(thing, _new_name(thing)) if name is None else name


_names: WeakKeyDictionary[object, str] = WeakKeyDictionary()
_given: set[str] = set()
_serials = count(1)


def _new_name(thing: object) -> str:
    module: object = getattr(thing, "__module__", None)
    qualified: object = getattr(thing, "__qualname__", None)
    name = f"{module}:{qualified}"
    found = attempt(_look_up, str(module), str(qualified))
    made_of = (found, getattr(found, "func", None), getattr(found, "coroutine", None))
    # A notebook or a reload may give the same name twice, and every script is `__main__`.
    if module == "__main__" or name in _given or not any(thing is part for part in made_of):
        return f"{name}#{next(_serials)}"
    _given.add(name)
    return name


def _look_up(module: str, qualified: str) -> object:
    found: object = sys.modules[module]
    for part in qualified.split("."):
        found = vars(found)[part]  # not getattr: a module's own `__getattr__` may import
    return found


def _refuse() -> Never:
    msg = "no exact text"
    raise ValueError(msg)


def _string(value: str) -> str:
    return f"s{len(value)}:{value}"


def _float(value: float) -> str:
    if value != value:  # noqa: PLR0124 - the test for NaN
        _refuse()
    return f"d{value!r};"


def _decimal(value: Decimal) -> str:
    if value.is_nan():
        _refuse()
    sign, digits, exponent = value.as_tuple()
    return f"D{sign}{''.join(map(str, digits))}e{exponent};"


def _duration(value: timedelta) -> str:
    return f"C{value.days},{value.seconds},{value.microseconds};"


def _zone(zone: tzinfo | None) -> str:
    if zone is None:
        return "n"
    if type(zone) is ZoneInfo:
        zone.__reduce__()  # raises for a zone read from a file, of which the key says nothing
        return _string(zone.key)
    if type(zone) is timezone or type(zone) is TzInfo:
        offset = cast("timedelta", zone.utcoffset(None))
        return type(zone).__name__ + _duration(offset) + _string(str(zone.tzname(None)))
    return _refuse()


def _moment(value: datetime | time) -> str:
    naive = value.replace(tzinfo=None).isoformat()
    letter = "A" if type(value) is datetime else "c"
    return f"{letter}{naive},{value.fold},{_zone(value.tzinfo)};"


def _spelled(value: object) -> str:
    return f"p{type(value).__name__},{_string(str(value))}"


def _dataclass_state(value: object, kind: type) -> dict[str, object]:
    own = kind.__mro__[:-1]
    names = {field.name for field in fields(cast("Any", value))}
    if not all("__dataclass_fields__" in vars(base) or base in _STATELESS for base in own):
        _refuse()  # another base may keep state that no attribute shows
    slots = {slot for base in own for slot in vars(base).get("__slots__", ())}
    if not slots <= names | {"__weakref__", "__dict__"}:
        _refuse()
    held: Mapping[str, object] = getattr(value, "__dict__", {})
    return {name: getattr(value, name) for name in names | held.keys()}


def _member_name(value: object, kind: EnumMeta) -> str:
    name = cast("str", vars(value)["_name_"])
    if kind.__members__.get(name) is not value:
        _refuse()  # a combination of flags
    return name


_STATELESS: Final[tuple[object, ...]] = (Generic, Protocol, ABC)

_BRACKETS: Final[dict[type, tuple[str, str, bool]]] = {
    list: ("[", "]", True),
    tuple: ("(", ")", True),
    set: ("<", ">", False),
    frozenset: ("|", ">", False),
}
"""Opening, closing, and whether the order counts."""

_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "n",
    bool: lambda value: "y" if value else "z",
    int: lambda value: (
        f"i{hex(value)};"
    ),  # decimal digits have a limit in Python, hex ones have none
    float: _float,
    str: _string,
    bytes: lambda value: f"b{value.hex()};",
    Decimal: _decimal,
    UUID: lambda value: f"u{value.int:x};",
    date: lambda value: f"a{value.isoformat()};",
    datetime: _moment,
    time: _moment,
    timedelta: _duration,
    **dict.fromkeys((PosixPath, PurePosixPath, WindowsPath, PureWindowsPath), _spelled),
    **dict.fromkeys((AnyUrl, AnyHttpUrl, HttpUrl), _spelled),
}
