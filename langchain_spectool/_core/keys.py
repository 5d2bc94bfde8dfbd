"""Call keys: what a tool's body will receive, as one text per distinct set of values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from inspect import getattr_static, signature
from itertools import count
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, cast, get_origin, get_type_hints

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from langchain_spectool._core.contracts import declared
from langchain_spectool._core.encoding import (
    MOST_ITEMS,
    attempt,
    encode,
    kind_of,
    unique_name,
    write,
)

Values: TypeAlias = dict[str, object]
"""Keyword arguments by name; arguments handed over by position are `*0`, `*1`, ..."""


class ToolLike(Protocol):
    """What is looked at first in a LangChain tool."""

    @property
    def name(self) -> str:
        """The name a model calls it by."""
        ...

    @property
    def args_schema(self) -> object:
        """A pydantic class, a JSON schema, or None."""
        ...


def call_key(tool: ToolLike, args: object) -> str | None:
    """Return a text that is equal exactly for calls whose body receives equal values.

    Equal means equal in value and type, after the tool's own schema coerced and defaulted `args`;
    values that are injected are left out. None and "" stand for no arguments.

    Returns:
        None where `args` are invalid or hold something that cannot be written exactly. Nothing is
        raised and `args` stay as they are, though validators of the schema run.
    """
    try:  # `attempt` written out: one function call less
        return prepared(tool).key_or_raise(args)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - as in `attempt`
        return None


def prepared(tool: ToolLike) -> "PreparedTool":
    """Return what is known of `tool`, made once and kept on the object itself.

    It is made anew for a copy, and once the name, the schema, a function or the contract changed.
    """
    state: dict[str, object] = getattr(tool, "__dict__", {})
    found = state.get(_KEY)
    if type(found) is PreparedTool and found.fits(tool, state):
        return found
    made = PreparedTool(tool)
    if _KEY not in state:
        # Threads that come first together agree on one: some identities hold a serial number.
        return cast("PreparedTool", state.setdefault(_KEY, made))
    state[_KEY] = made
    return made


_KEY: Final = "_spectool_prepared"
_WATCHED: Final = ("name", "args_schema", "func", "coroutine", "_spectool_declaration")
_PARSE: Final = "_parse_input"
_CONVERT: Final = "_to_args_and_kwargs"
_serials = count(1)


class PreparedTool:
    """The keys of one tool object. Make it with `prepared`."""

    __slots__ = ("_left_out", "_read", "_tool", "_watched", "identity", "injected")

    identity: str
    """Differs between tools that differ in name, schema, version or body.

    The same in every process if the body is a function or a class that its module knows by name
    and the tool holds no state; otherwise valid in this process only.
    """
    injected: frozenset[str]
    """Parameters that the framework fills, never the model."""

    def __init__(self, tool: ToolLike) -> None:
        state: Mapping[str, object] = getattr(tool, "__dict__", {})
        self._tool = tool
        self._watched = tuple(map(state.get, _WATCHED))
        self.injected = _injected(tool)
        self.identity = _identity(tool)
        self._left_out = self.injected | _added(tool)
        self._read = self._reader(tool)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Leave nothing in pickled and deep copied tools."""
        return (type(None), ())

    def fits(self, tool: ToolLike, state: Mapping[str, object]) -> bool:
        """Say whether this was made of `tool` as it is now; `state` is its `__dict__`."""
        name, schema, func, coroutine, declaration = self._watched
        return (
            self._tool is tool
            and state.get("name") is name
            and state.get("args_schema") is schema
            and state.get("func") is func
            and state.get("coroutine") is coroutine
            and state.get("_spectool_declaration") is declaration
        )

    def values(self, args: object) -> Values | None:
        """Return what the body will receive for `args`, or None if they are invalid.

        Dicts, lists and tuples in it are copies, so that neither validators nor the body reach
        the objects in `args`. Other objects are shared.
        """
        return attempt(self._values, args)

    def key(self, args: object) -> str | None:
        """Return the call key of `args`; see `call_key`."""
        return attempt(self.key_or_raise, args)

    def key_or_raise(self, args: object) -> str:
        """Return the call key of `args`; raise what validators raise, and ValueError for None."""
        return self.identity + write(self._values(args))

    def values_key(self, values: Mapping[str, object], *, exact: bool = False) -> str | None:
        """Return the call key of values a body received; `exact` as in `encode`."""
        plain: Values | None = attempt(dict, values)
        text = None if plain is None else encode(plain, exact=exact)
        return None if text is None else self.identity + text

    def received(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Values:
        """Return the values in what was handed to `_run` or `_arun`.

        For equal calls this equals `values`: what the framework added or injected is left out.
        """
        values = dict(kwargs)
        values.update((f"*{place}", value) for place, value in enumerate(args))
        return self._own(values)

    def _values(self, args: Any) -> Values:  # noqa: ANN401 - its type is the question
        kind = kind_of(args)
        if kind is not dict:
            if args is not None and (kind is not str or args):
                msg = f"arguments must be a dict, got {kind}"
                raise TypeError(msg)
            args = {}
        given: Values = args
        if _ATOMS.issuperset(map(type, given.values())) and self.injected.isdisjoint(given):
            return self._read(given.copy())
        steps = iter(range(MOST_ITEMS))
        injected = self.injected
        return self._read({n: _copied(v, steps) for n, v in given.items() if n not in injected})

    def _reader(self, tool: ToolLike) -> Callable[[Values], Values]:
        """Choose the shortest way to the values that ends where `tool` itself would end."""
        schema = tool.args_schema
        if not _is_stock(tool, _CONVERT):
            convert = getattr(tool, _CONVERT)
            return lambda args: self.received(*convert(args, "speculative"))
        if isinstance(schema, type) and not _fields(schema):
            return lambda _: {}  # such a tool runs without arguments, whatever the model sent
        parsed = _parse_reader(getattr(tool, _PARSE), self.received, self._left_out)
        if not _is_stock(tool, _PARSE):
            return parsed
        if schema is None or isinstance(schema, dict):
            return self._raw
        if not _is_plain(schema):
            return parsed
        return attempt(_model_reader, schema, self.injected, self._left_out) or parsed

    def _raw(self, args: Values) -> Values:
        if not all(type(name) is str for name in args):
            msg = "keyword arguments must have strings for names"
            raise TypeError(msg)
        return self._own(args)

    def _own(self, values: Values) -> Values:
        left_out = self._left_out
        if left_out.isdisjoint(values):
            return values
        return {name: value for name, value in values.items() if name not in left_out}


_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def _copied(value: Any, steps: Iterator[int]) -> object:  # noqa: ANN401 - its type is the question
    """Copy dicts, lists and tuples all the way down, in as many steps as there are numbers left.

    Raises:
        StopIteration: The steps are used up: validators might not come to an end either.
    """
    next(steps)
    kind = kind_of(value)
    if kind is dict:
        return {key: _copied(item, steps) for key, item in value.items()}
    if kind is list:
        return [_copied(item, steps) for item in value]
    if kind is tuple:
        return tuple([_copied(item, steps) for item in value])
    return value


def _parse_reader(
    parse: Callable[..., Any], received: Callable[..., Values], left_out: frozenset[str]
) -> Callable[[Values], Values]:
    def read(args: Values) -> Values:
        parsed: str | Values = parse(args, "speculative")
        if isinstance(parsed, str):
            return received((parsed,), {})
        return parsed if left_out.isdisjoint(parsed) else received((), parsed)

    return read


def _model_reader(
    schema: type[BaseModel], injected: frozenset[str], added: frozenset[str]
) -> Callable[[Values], Values]:
    names = schema.model_fields
    absent = [name for name in names if name in injected and names[name].is_required()]
    optional: dict[str, Any] = dict.fromkeys(absent, (Any, None))
    model = create_model(schema.__name__, __base__=schema, **optional) if absent else schema
    validate = model.__pydantic_validator__.validate_python
    kept = dict.fromkeys(name for name in names if name not in injected | added).keys()

    def read(args: Values) -> Values:
        result = validate(args)
        if type(result) is not model:
            msg = f"a validator of {schema} returned {type(result)}"
            raise TypeError(msg)
        values = vars(result)
        return values if values.keys() == kept else {name: values[name] for name in kept}

    return read


def _is_plain(schema: object) -> TypeGuard[type[BaseModel]]:
    """Say whether the body receives the validated fields, all of them and nothing else."""
    if not isinstance(schema, type) or BaseModel not in schema.__mro__:
        return False
    model = cast("type[BaseModel]", schema)
    decorators = model.__pydantic_decorators__
    return model.__pydantic_complete__ and not (
        model.__pydantic_root_model__
        or model.model_config.get("extra") == "allow"
        or decorators.computed_fields
        or decorators.model_serializers
        or decorators.field_serializers
        or any(getattr_static(model, name) is not vars(BaseModel)[name] for name in _METHODS)
        or any(map(_is_renamed_or_hidden, model.model_fields.items()))
    )


def _is_renamed_or_hidden(item: tuple[str, FieldInfo]) -> bool:
    name, field = item
    return (
        name in {"args", "kwargs"}  # placeholders for `*args` and `**kwargs`
        or any(getattr(field, trait, None) is not None for trait in _TRAITS)
    )


_TRAITS: Final = (
    "alias",
    "validation_alias",
    "serialization_alias",
    "exclude",
    "exclude_if",
)

_METHODS: Final = ("model_validate", "model_dump", "__get_pydantic_core_schema__")


def _is_stock(tool: ToolLike, method: str) -> bool:
    base = next((kind for kind in type(tool).__mro__ if _path(kind) == _BASE), None)
    function = getattr(getattr(tool, method), "__func__", None)
    return base is not None and function is vars(base)[method]


_BASE: Final = "langchain_core.tools.base.BaseTool"
_CONFIG: Final = "langchain_core.runnables.config.RunnableConfig"


def _path(kind: object) -> str:
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"


def _injected(tool: ToolLike) -> frozenset[str]:
    """Return what the signature and the schema mark as filled by the framework."""
    marked: frozenset[str] = attempt(getattr, tool, "_injected_args_keys") or frozenset()
    fields: dict[str, FieldInfo] = getattr(tool.args_schema, "model_fields", {})
    return marked.union(name for name, field in fields.items() if _is_injected(field))


def _is_injected(field: FieldInfo) -> bool:
    marks: list[object] = [*field.metadata, get_origin(field.annotation) or field.annotation]
    kinds = [mark if isinstance(mark, type) else type(mark) for mark in marks]
    return any(_path(base) in _MARKS for kind in kinds for base in kind.__mro__)


_MARKS: Final = {
    "langchain_core.tools.base.InjectedToolArg",
    "langchain_core.tools.base._DirectlyInjectedToolArg",
}


def _added(tool: ToolLike) -> frozenset[str]:
    """Return the names of arguments that the framework overwrites at each run."""
    names: set[str] = set()
    for body, handed in _HANDED.items():
        function: Any = getattr(tool, body, None)
        shape = attempt(signature, function)
        if shape is not None and handed in shape.parameters:
            names.add(handed)
        whole = function.func if isinstance(function, partial) else function
        hints: dict[str, Any] = attempt(get_type_hints, whole) or {}
        names.update(name for name, hint in hints.items() if _path(hint) == _CONFIG)
    return frozenset(names)


_HANDED: Final = {
    "_run": "run_manager",
    "_arun": "run_manager",
    "func": "callbacks",
    "coroutine": "callbacks",
}


def _identity(tool: ToolLike) -> str:
    contract = declared(tool)
    bodies = [getattr(tool, "func", None), getattr(tool, "coroutine", None)]
    parts = (
        _schema_text(tool.args_schema),
        contract.version if contract else "",
        unique_name(type(tool)),
        [body if body is None else unique_name(body) for body in bodies],
        next(_serials) if _holds_state(type(tool)) else None,
    )
    text = str(encode(parts))
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{len(tool.name)}:{tool.name}{digest}"


def _holds_state(kind: type) -> bool:
    """Say whether tools of this class have fields that LangChain's own do not have."""
    home = next((base for base in kind.__mro__ if base.__module__.startswith(_TOOLS)), None)
    return home is None or any(
        getattr(kind, names).keys() != getattr(home, names).keys()
        for names in ("__pydantic_fields__", "__private_attributes__")
    )


_TOOLS: Final = "langchain_core.tools."


class _Quiet(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Say nothing: a default that JSON cannot hold matters to no fingerprint."""


def _schema_text(schema: object) -> str:
    generate: Callable[..., object] | None = getattr(schema, "model_json_schema", None)
    found = generate and attempt(partial(generate, schema_generator=_Quiet))
    return encode(found or schema) or str(attempt(repr, _fields(schema) or schema))


def _fields(schema: object) -> Mapping[str, object]:
    """Return the fields of a pydantic class, of version 1 too; none for anything else."""
    fields = getattr(schema, "model_fields", None)
    return getattr(schema, "__fields__", {}) if fields is None else fields
