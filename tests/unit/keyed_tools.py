"""Tools of every kind of schema, whose bodies note what they were given."""

import copy
from enum import Enum
from typing import Annotated, Any, Literal, Optional

from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool, tool
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.v1 import BaseModel as BaseModelV1

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
