"""Keys of odd schemas and arguments: none is wrong, nothing raises, and nothing is touched."""

import asyncio
import functools
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from pydantic import (
    BaseModel,
    RootModel,
    create_model,
    model_validator,
)
from typing_extensions import TypedDict

from langchain_spectool._core.keys import call_key, prepared
from tests.unit.keyed_tools import (
    BY_NAME,
    TOOLS,
    Parsing,
    Place,
    anything,
    body_values,
    names,
    over,
    took,
    values,
    variadic,
)


class Rooted(RootModel[dict[str, int]]):
    pass


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
