"""Keys are equal exactly when the bodies of the tools receive equal values."""

import asyncio
import copy
import functools
import pickle
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.v1 import BaseModel as BaseModelV1
from typing_extensions import TypedDict

from langchain_spectool._core.contracts import Contract, declare
from langchain_spectool._core.keys import PreparedTool, call_key, prepared

received: list[dict[str, Any]] = []
"""What the bodies below were given, call by call."""


def took(**values: Any) -> str:
    """Record what a body was given."""
    received.append(values)
    return "done"


class Unit(Enum):
    C = "c"
    F = "f"


class Place(BaseModel):
    city: str
    zip_code: int | None = None


@tool
def lookup(order_id: int, unit: str = "c", note: Optional[str] = None) -> str:  # noqa: UP045
    """Look up."""
    return took(order_id=order_id, unit=unit, note=note)


@tool
def anything(x: Any) -> str:
    """Take anything."""
    return took(x=x)


@tool
def union(x: float | str | bool | list[int] | None = None, n: int = 0) -> str:
    """Take one of many types."""
    return took(x=x, n=n)


@tool
def number(x: float) -> str:
    """Take a float."""
    return took(x=x)


@tool
def zerodef(n: int, k: Optional[int] = 0) -> str:  # noqa: UP045
    """Take a falsy default."""
    return took(n=n, k=k)


@tool
def shaped(place: Place, units: list[Unit], kind: Literal["x", "n"] = "x") -> str:
    """Take a model, enums and a literal."""
    return took(place=place, units=units, kind=kind)


@tool
def collected(x: set[int], note: dict[str, float] | None = None) -> str:
    """Take what JSON has no type for."""
    return took(x=x, note=note)


@tool
def nothing() -> str:
    """Take nothing."""
    return took()


@tool
def variadic(n: int = 1, **kwargs: Any) -> str:
    """Take whatever else there is."""
    return took(n=n, **kwargs)


@tool
def configured(n: int, config: RunnableConfig, callbacks: Any = None) -> str:
    """Take what the framework adds."""
    return took(n=n)


@tool
def served(n: int, runtime: Annotated[object | None, InjectedToolArg] = None) -> str:
    """Take a runtime as the tools of MCP servers do."""
    return took(n=n)


def over(schema: Any, name: str) -> BaseTool:
    """Return a tool with this schema whose body takes what it gets."""
    return StructuredTool(name=name, description="Take.", args_schema=schema, func=took)


class Renamed(BaseModel):
    model_config = ConfigDict(validate_by_name=True)
    n: int = Field(default=1, alias="k")
    x: Any = Field(default=None, validation_alias="unit")


class Hiding(BaseModel):
    n: int = Field(default=1, exclude=True)
    x: Any = None


class Computing(BaseModel):
    n: int = 1

    @computed_field
    @property
    def x(self) -> int:
        """Return a value the model may ask for by name."""
        return self.n + 1


class Welcoming(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 1


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    n: int = 1
    x: float = 0.0


class Validating(BaseModel):
    note: str = ""
    x: Any = Field(default_factory=list)
    n: int = 0

    @model_validator(mode="before")
    @classmethod
    def take_unit(cls, data: Any) -> Any:
        """Move a field, in the very dict that was passed."""
        if "unit" in data:
            data["note"] = data.pop("unit")
        return data

    @field_validator("note")
    @classmethod
    def strip(cls, value: str) -> str:
        """Coerce."""
        return value.strip()

    @model_validator(mode="after")
    def grow(self) -> "Validating":
        """Change an object that came from the caller."""
        if isinstance(self.x, list):
            self.x.append("seen")
        return self


class Serializing(BaseModel):
    n: int = 1
    x: Any = None

    @field_serializer("x")
    def refuse(self, value: Any) -> Any:
        """Keep stock from running the body."""
        if value == "a":
            raise ValueError(value)
        return value


class Remodelling(BaseModel):
    n: int = 1
    x: Any = None

    @model_serializer
    def only_x(self) -> dict[str, Any]:
        """Decide which fields the body receives."""
        return {"x": self.x}


class Rooted(RootModel[dict[str, int]]):
    pass


class Empty(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Old(BaseModelV1):
    n: int = 1
    x: Any = None


class Raw(BaseTool):
    name: str = "raw"
    description: str = "Take arguments as they come."

    def _run(self, *, run_manager: Any = None, **values: Any) -> str:
        return took(**values)


class Parsing(BaseTool):
    name: str = "parsing"
    description: str = "Parse arguments in a way of its own."
    args_schema: Any = Hiding

    def _parse_input(self, tool_input: Any, tool_call_id: str | None) -> Any:
        parsed = super()._parse_input(tool_input, tool_call_id)
        return {**parsed, "k": parsed["x"] == 1, "run_manager": 1}

    def _run(self, *, run_manager: Any = None, **values: Any) -> str:
        return took(**values)


class Wording(Raw):
    name: str = "wording"

    def _parse_input(self, tool_input: Any, tool_call_id: str | None) -> Any:
        return str(tool_input["x"])

    def _run(self, word: str) -> str:  # type: ignore[override]
        return took(**{"*0": word})


TOOLS: list[BaseTool] = [
    *(lookup, anything, union, number, zerodef, shaped, collected, nothing, variadic, configured),
    served,
    *(
        over(schema, schema.__name__)
        for schema in (
            *(Renamed, Hiding, Computing, Welcoming, Strict, Validating, Serializing, Remodelling),
            *(Empty, Old),
        )
    ),
    over({"type": "object", "properties": {"x": {"type": "integer"}}}, "by_json_schema"),
    Tool(name="single", description="Take one.", func=lambda x: took(**{"*0": x})),
    Raw(),
    Parsing(),
    Wording(),
]
BY_NAME = {each.name: each for each in TOOLS}


def same(one: Any, other: Any) -> bool:
    """Say by hand what equal in value and type means."""
    if type(one) is not type(other):
        return False
    if isinstance(one, BaseModel):
        return same(vars(one), vars(other))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return repr(one) == repr(other) or (isinstance(one, set) and one == other)


def body_values(each: BaseTool, args: Any) -> dict[str, Any] | None:
    """Run `each` for real and return what its body was given, or None if it did not run."""
    received.clear()
    call = {"name": each.name, "args": copy.deepcopy(args), "id": "c1", "type": "tool_call"}
    try:
        each.invoke(call)
    except Exception:  # noqa: BLE001 - any refusal
        return None
    return received[0] if received else None


leaves = st.sampled_from(
    [0, 1, 1.0, 1.5, -0.0, 0.0, "0", "1", "1.0", True, False, None, "a", " a", "", "c", "x", "n"]
) | st.sampled_from([10**30, "\ud83d", "null"])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["city", "zip_code", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)
names = st.sampled_from(
    [
        *("order_id", "unit", "note", "x", "n", "k", "kwargs", "args", "place", "units", "kind"),
        *("bogus", "config", "run_manager", "callbacks", "runtime", "tool_input", "__arg1"),
    ]
)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "lookup": st.fixed_dictionaries(
        {"order_id": leaves}, optional={"unit": values, "note": values}
    ),
    "shaped": st.fixed_dictionaries(
        {
            "place": st.fixed_dictionaries({"city": values}, optional={"zip_code": values}),
            "units": st.lists(st.sampled_from(["c", "f", "x"]), max_size=2),
        },
        optional={"kind": values},
    ),
    "zerodef": st.fixed_dictionaries({"n": leaves}, optional={"k": leaves}),
    "number": st.fixed_dictionaries({"x": leaves}),
    "anything": st.fixed_dictionaries({"x": values}),
    "collected": st.fixed_dictionaries({"x": st.lists(leaves, max_size=3)}),
    "single": st.dictionaries(names, values, min_size=1, max_size=1),
}
few = st.dictionaries(st.sampled_from(["x", "n", "unit"]), leaves, max_size=3)
many = st.dictionaries(names, values, max_size=4)


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=60)
@given(data=st.data())
def test_keys_are_equal_exactly_when_bodies_receive_equal_values(name: str, data: Any) -> None:
    """For any two argument dicts, the key agrees with two real runs of the tool."""
    each = BY_NAME[name]
    drawn = FITTING.get(name, few) | few | many
    one, other = data.draw(drawn), data.draw(drawn)
    before = copy.deepcopy([one, other])
    keys = [call_key(each, args) for args in (one, other)]
    assert [one, other] == before
    bodies = [body_values(each, args) for args in (one, other)]
    for args, key, body in zip((one, other), keys, bodies, strict=True):
        predicted = prepared(each).values(args)
        if body is None:
            # Raw arguments may miss the signature, which only the body itself can tell.
            assert key is None or each.name in {"by_json_schema", "raw"}
        else:
            assert predicted is not None
            assert same(predicted, body)
    if None not in bodies:
        assert (keys[0] == keys[1]) == same(*bodies)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_tool_runs_for_some_arguments(name: str) -> None:
    """The property above is not empty for any of the tools."""
    tried = [{}, {"x": 1}, {"n": 1}, {"order_id": 1}, {"place": {"city": "a"}, "units": ["c"]}]
    tried.append({"x": [1]})
    assert any(body_values(BY_NAME[name], args) is not None for args in tried)


SAME = {
    "B01 whole float": (lookup, {"order_id": 1}, {"order_id": 1.0}),
    "B01 digits": (lookup, {"order_id": 1}, {"order_id": "1"}),
    "B01 digits of a whole float": (lookup, {"order_id": 1}, {"order_id": "1.0"}),
    "B01 boolean": (lookup, {"order_id": 1}, {"order_id": True}),
    "B03 default given": (lookup, {"order_id": 5}, {"order_id": 5, "unit": "c"}),
    "B03 null default given": (lookup, {"order_id": 5}, {"order_id": 5, "note": None}),
    "B03 falsy default given": (zerodef, {"n": 1}, {"n": 1, "k": 0}),
    "B03 unknown argument": (lookup, {"order_id": 5}, {"order_id": 5, "bogus": 1}),
    "B04 key order": (lookup, {"order_id": 5, "unit": "f"}, {"unit": "f", "order_id": 5}),
    "B04 nested key order": (
        anything,
        {"x": {"a": 1, "b": [1, {"c": 1, "d": 2}]}},
        {"x": {"b": [1, {"d": 2, "c": 1}], "a": 1}},
    ),
    "B05 null": (nothing, None, {}),
    "B05 empty string": (nothing, "", {}),
    "B05 null beside a default": (variadic, None, {"n": 1}),
    "no parameters": (nothing, {"bogus": 1}, {}),
    "no fields": (BY_NAME["Empty"], {"bogus": 1}, {}),
    "B18 forged injected value": (served, {"n": 1}, {"n": 1, "runtime": "forged"}),
    "what the framework adds": (configured, {"n": 1}, {"n": 1, "config": 2, "callbacks": 3}),
}


@pytest.mark.parametrize("case", SAME)
def test_same(case: str) -> None:
    """Two spellings of one call have one key."""
    each, one, other = SAME[case]
    assert call_key(each, one) is not None
    assert call_key(each, one) == call_key(each, other)


DIFFERENT = {
    "B01 any float": (anything, {"x": 1}, {"x": 1.0}),
    "B01 any boolean": (anything, {"x": 1}, {"x": True}),
    "B01 any false": (anything, {"x": 0}, {"x": False}),
    "B01 any string": (anything, {"x": 1}, {"x": "1"}),
    "B03 the word None": (lookup, {"order_id": 5}, {"order_id": 5, "note": "None"}),
    "B03 empty string": (lookup, {"order_id": 5}, {"order_id": 5, "note": ""}),
    "B03 null for a falsy default": (zerodef, {"n": 1}, {"n": 1, "k": None}),
    "B04 list order": (anything, {"x": {"b": [1, 2]}}, {"x": {"b": [2, 1]}}),
    "B04 mapping and pairs": (anything, {"x": {"a": 1}}, {"x": [["a", 1]]}),
    "B04 number as key": (anything, {"x": {"1": 1}}, {"x": {1: 1}}),
    "B07 composed and decomposed": (anything, {"x": "Z\u00fcrich"}, {"x": "Zu\u0308rich"}),
    "B07 trailing space": (anything, {"x": "a"}, {"x": "a "}),
    "B07 lone surrogates": (anything, {"x": "\ud83d"}, {"x": "\ud83e"}),
    "B07 zero width": (anything, {"x": "\u200bpay"}, {"x": "pay"}),
    "B43 joined strings": (anything, {"x": ["web", 12, 3]}, {"x": ["web", 1, 23]}),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_different(case: str) -> None:
    """Two calls that a body can tell apart have two keys."""
    each, one, other = DIFFERENT[case]
    keys = call_key(each, one), call_key(each, other)
    assert None not in keys
    assert keys[0] != keys[1]


NOT_A_CALL = {
    "B01 not whole": (lookup, {"order_id": 1.5}),
    "B03 null for a string": (lookup, {"order_id": 5, "unit": None}),
    "missing": (lookup, {}),
    "B05 list": (nothing, []),
    "B05 scalar": (nothing, 3),
    "B05 doubly encoded": (lookup, '{"order_id": 5}'),
    "B05 false": (nothing, False),
    "not a number": (number, {"x": float("nan")}),
    "opaque": (anything, {"x": object()}),
    "number as name": (BY_NAME["by_json_schema"], {1: 1}),
    "two for one": (BY_NAME["single"], {"a": 1, "b": 2}),
    "none for one": (BY_NAME["single"], {}),
    "no tool": (object(), {}),
}


@pytest.mark.parametrize("case", NOT_A_CALL)
def test_not_a_call(case: str) -> None:
    """What cannot be a call, or not be written exactly, has no key."""
    each, args = NOT_A_CALL[case]
    assert call_key(each, args) is None


class Loud:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


class Letters(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError


python_objects = st.recursive(
    values | st.builds(Loud) | st.builds(object) | st.just(float("nan")) | st.builds(Letters),
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.dictionaries(st.integers() | st.text(), inner)
    ),
    max_leaves=6,
)


@given(st.sampled_from(TOOLS), python_objects | st.dictionaries(names, python_objects, max_size=3))
def test_call_key_never_raises(each: BaseTool, args: Any) -> None:
    """Any Python object may stand where arguments belong."""
    key = call_key(each, args)
    assert key is None or key.startswith(prepared(each).identity)


def a_cycle() -> dict[str, Any]:
    """Return arguments that hold themselves, through a list and a tuple."""
    items: list[Any] = []
    args = {"x": items, "n": 1}
    items.extend([args, (items,), (1, 2)])
    return args


def test_cycles_and_doubled_objects_have_no_key() -> None:
    """Arguments that are endless, or only when written out, are refused in no time."""
    doubled: Any = ()
    for _ in range(60):
        doubled = (doubled, doubled)
    assert call_key(anything, a_cycle()) is None
    assert call_key(anything, {"x": doubled}) is None
    assert call_key(variadic, {"x": doubled}) is None


def test_values_share_no_container_with_the_arguments() -> None:
    """A body that changes what it was given changes no call, and the other way round."""
    args = {"x": {"a": [1, (2, [3])]}}
    found = prepared(anything).values(args)
    assert found == args
    args["x"]["a"][1][1].append(4)  # type: ignore[index]
    assert found == {"x": {"a": [1, (2, [3])]}}


def test_validators_never_reach_the_arguments() -> None:
    """A validator that changes what it validates changes a copy."""
    args: dict[str, Any] = {"unit": " a ", "x": [1]}
    assert prepared(BY_NAME["Validating"]).values(args) == {"note": "a", "x": [1, "seen"], "n": 0}
    assert args == {"unit": " a ", "x": [1]}


@pytest.mark.parametrize("kind", [StructuredTool, Parsing])
@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, GeneratorExit])
def test_whatever_a_validator_raises_is_no_call(
    kind: type[BaseTool], error: type[BaseException]
) -> None:
    """Even what would cancel a task, had the validator been right to raise it."""
    each = kind(name="t", description="d", args_schema=raising(error), func=took)
    assert call_key(each, {"x": 1}) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_program_passes(error: type[BaseException]) -> None:
    """Nobody swallows these."""
    each = over(raising(error), "t")
    with pytest.raises(error):
        call_key(each, {"x": 1})
    with pytest.raises(error):
        prepared(each).key({"x": 1})


def raising(error: type[BaseException]) -> type[BaseModel]:
    """Return a schema whose validator raises `error`."""

    def check(_data: Any) -> Any:
        raise error

    validators: Any = {"check": model_validator(mode="before")(check)}
    return create_model("Raising", x=(Any, None), __validators__=validators)


def test_a_validator_that_returns_another_object_is_no_call() -> None:
    """Stock reads whatever comes back; a key does not."""

    class Replaced(BaseModel):
        n: int = 1

        @model_validator(mode="wrap")
        @classmethod
        def replace(cls, data: Any, handler: Any) -> Any:
            return Place(city="a") if data else handler(data)

    each = over(Replaced, "t")
    assert prepared(each).values({}) == {"n": 1}
    assert prepared(each).values({"n": 2}) is None


def test_what_a_validator_remembers_is_no_value() -> None:
    """A cached property is no field, and no body receives it."""

    class Remembering(BaseModel):
        n: int = 1

        @functools.cached_property
        def double(self) -> int:
            return self.n * 2

        @model_validator(mode="after")
        def remember(self) -> "Remembering":
            assert self.double == self.n * 2
            return self

    each = over(Remembering, "t")
    assert body_values(each, {"n": 2}) == {"n": 2}
    assert prepared(each).values({"n": 2}) == {"n": 2}


def test_a_schema_of_one_root_value_goes_through_stock() -> None:
    """What stock makes of it is what counts."""
    assert call_key(over(Rooted, "t"), {"a": 1}) is None
    assert body_values(over(Rooted, "t"), {"a": 1}) is None


def test_a_schema_that_is_not_complete_yet_goes_through_stock() -> None:
    """A forward reference that is known only later gives a call once it is."""
    late = create_model("Late", x=("Later", None))
    each = over(late, "t")
    assert call_key(each, {"x": 1}) is None
    late.model_rebuild(_types_namespace={"Later": int})
    assert prepared(each).values({"x": "1"}) == {"x": 1}


class State(TypedDict):
    user: str


class Annotated_(BaseModel):  # noqa: N801
    n: int
    user: Annotated[str, InjectedToolArg()]


def test_required_injected_parameters_do_not_keep_a_call_from_its_key() -> None:
    """The framework fills them later, so the rest of the call is predicted without them."""

    @tool
    def at_runtime(n: int, runtime: ToolRuntime[None, State]) -> str:
        """Take a runtime."""
        return took(n=n)

    @tool
    def of_user(n: int, user: Annotated[str, InjectedState("user")]) -> str:
        """Take from the state."""
        return took(n=n)

    for each, name in ((at_runtime, "runtime"), (of_user, "user"), (over(Annotated_, "t"), "user")):
        found = prepared(each)
        assert found.injected == {name}
        assert found.values({"n": "1"}) == {"n": 1}
        assert found.values({"n": "1", name: "forged"}) == {"n": 1}
        assert found.received((), {"n": 1, name: "real", "run_manager": 1, "config": 2}) == {"n": 1}


def test_a_schema_that_cannot_be_prepared_goes_through_stock() -> None:
    """A class that refuses to be derived from still validates as it is."""

    class Final(BaseModel):
        n: int
        user: Annotated[str, InjectedToolArg()]

        @classmethod
        def __pydantic_init_subclass__(cls, **_: Any) -> None:
            raise TypeError

    found = prepared(over(Final, "t"))
    assert found.values({"n": 1}) is None
    assert found.injected == {"user"}


def test_partial_functions_show_their_config() -> None:
    """The framework looks through a partial, and so does the key."""

    def look(limit: int, n: int, settings: RunnableConfig) -> str:
        return took(n=n)

    each = StructuredTool(
        name="t",
        description="d",
        args_schema={"type": "object", "properties": {}},
        func=functools.partial(look, 3),
    )
    assert body_values(each, {"n": 1, "settings": 2}) == {"n": 1}
    assert prepared(each).values({"n": 1, "settings": 2}) == {"n": 1}


def test_values_of_a_body_have_the_key_of_the_call() -> None:
    """The key of what arrived equals the key of what was asked, whatever the order."""
    found = prepared(lookup)
    values = {"note": None, "unit": "c", "order_id": 5}
    assert found.values_key(values) == call_key(lookup, {"order_id": "5"})
    assert found.values_key({"order_id": object()}) is None
    assert found.values_key(3) is None  # type: ignore[arg-type]


def test_exact_keys_tell_set_fields_apart() -> None:
    """A nested model whose default was spelled out is equal, but not exactly."""
    found = prepared(shaped)
    one, other = (
        found.values({"place": place, "units": []})
        for place in ({"city": "a"}, {"city": "a", "zip_code": None})
    )
    assert one is not None
    assert other is not None
    assert found.values_key(one) == found.values_key(other)
    assert found.values_key(one, exact=True) != found.values_key(other, exact=True)


def made(answer: str, name: str = "act", schema: Any = Place) -> BaseTool:
    """Return a tool that differs from its likes in what its function remembers."""
    return StructuredTool(name=name, description="d", args_schema=schema, func=lambda **_: answer)


class Server:
    def act(self, **values: Any) -> str:
        """Answer for this very server."""
        return took(**values)


class Indexed(Raw):
    index: str = ""


def served_by(server: Server) -> BaseTool:
    """Return a tool whose body belongs to one object."""
    return StructuredTool(name="act", description="d", args_schema=Place, func=server.act)


def over_nested(kind: Any) -> BaseTool:
    """Return a tool whose schema holds another one named `Inner`."""
    inner = create_model("Inner", x=(kind, ...))
    return over(create_model("Outer", inner=(inner, ...)), "act")


TWINS: dict[str, Callable[[], tuple[BaseTool, BaseTool]]] = {
    "B41 function": lambda: (made("safe"), made("dangerous")),
    "B41 schema": lambda: (over(Place, "act"), over(Hiding, "act")),
    "nested schema": lambda: (over_nested(int), over_nested(str)),
    "no schema at all": lambda: (over(Place, "act"), over({}, "act")),
    "schemas without JSON": lambda: (over(opaque("a"), "act"), over(opaque("b"), "act")),
    "B41 object": lambda: (served_by(Server()), served_by(Server())),
    "B41 fields": lambda: (Indexed(index="a"), Indexed(index="b")),
    "class": lambda: (Raw(name="act"), Wording(name="act")),
    "name": lambda: (over(Place, "a,b"), over(Place, "a")),
    "version": lambda: (over(Place, "act"), versioned("2")),
}


def opaque(name: str) -> type[BaseModel]:
    """Return a schema that no JSON schema describes."""
    fields: dict[str, Any] = {name: (Callable[[int], int], ...)}
    return create_model("Opaque", **fields)


def versioned(version: str) -> BaseTool:
    """Return a tool with a declared version."""
    each = over(Place, "act")
    declare(each, Contract(version=version))
    return each


@pytest.mark.parametrize("case", TWINS)
def test_look_alikes_have_identities_of_their_own(case: str) -> None:
    """One name, two tools: neither is served the other's results."""
    one, other = TWINS[case]()
    assert prepared(one).identity != prepared(other).identity


def test_names_cannot_run_into_what_follows() -> None:
    """Separators inside a name are part of the name."""
    identities = [prepared(over(Place, name)).identity for name in ("a", "a:", "1:a", "a,b", "a b")]
    assert not any(
        one != other and one.startswith(other) for one in identities for other in identities
    )


def test_a_tool_its_module_knows_by_name_has_one_identity() -> None:
    """It holds in every process: made twice, it is the same."""
    assert PreparedTool(lookup).identity == PreparedTool(lookup).identity
    assert PreparedTool(Raw()).identity == PreparedTool(Raw()).identity


def test_a_tool_is_prepared_once() -> None:
    """The second look finds what the first one made, and the tool shows no trace of it."""
    each = over(Place, "act")
    dumped, shown = each.model_dump(), repr(each)
    found = prepared(each)
    assert prepared(each) is found
    assert each.model_dump() == dumped
    assert repr(each) == shown
    assert each == over(Place, "act")


CHANGES: dict[str, Callable[[BaseTool], Any]] = {
    "name": lambda each: setattr(each, "name", "other"),
    "schema": lambda each: setattr(each, "args_schema", Hiding),
    "function": lambda each: setattr(each, "func", lambda **_: "other"),
    "coroutine": lambda each: setattr(each, "coroutine", lambda **_: "other"),
    "version": lambda each: declare(each, Contract(version="2")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_tool_is_prepared_anew(change: str) -> None:
    """What an identity was made of cannot change behind its back."""
    each = over(Place, "act")
    before = prepared(each).identity
    CHANGES[change](each)
    assert prepared(each).identity != before


def test_copies_are_prepared_on_their_own() -> None:
    """A copy carries the note along, but never reads with the original's parser."""
    original = Indexed(index="a")
    found = prepared(original)
    copied = original.model_copy(update={"index": "b"})
    assert prepared(copied).identity != found.identity
    assert prepared(original) is found
    named = lookup.model_copy(update={"description": "other"})
    assert prepared(named).identity == prepared(lookup).identity


def test_deep_copies_and_pickles_carry_nothing() -> None:
    """A prepared tool can be copied and stored as before."""
    each = Raw()
    prepared(each)
    for restored in (copy.deepcopy(each), pickle.loads(pickle.dumps(each))):  # noqa: S301
        assert call_key(restored, {"x": 1}) == call_key(each, {"x": 1})


class Plain:
    """Is no LangChain tool, but parses like one."""

    __slots__ = ()
    name = "plain"
    args_schema = None

    def _to_args_and_kwargs(self, args: Any, _call_id: str) -> Any:
        return (args["x"],), {"n": 1}


def test_an_object_that_cannot_hold_anything_is_prepared_each_time() -> None:
    """Only speed is lost, and with it an identity that lasts."""
    each = Plain()
    assert prepared(each).values({"x": 1}) == {"*0": 1, "n": 1}
    assert prepared(each) is not prepared(each)
