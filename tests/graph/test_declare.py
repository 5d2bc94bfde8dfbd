"""`@speculatable` on everything that is a tool, and the words for what is not."""

import pickle
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain.agents.middleware import TodoListMiddleware
from langchain.agents.middleware.todo import write_todos
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, Tool, tool
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime
from langgraph.types import Command

from langchain_spectool._core.contracts import Contract, declared
from langchain_spectool.errors import ContractError, NotAvailableYet
from langchain_spectool.graph.declare import (
    Explanation,
    contract_of,
    explain,
    speculatable,
    why_not,
)


@dataclass(frozen=True)
class FakePolicy:
    allow_external: bool = False


def _make_tool(name: str = "search") -> BaseTool:
    @tool(name)
    def body(query: str) -> str:
        """Search."""
        return query

    return body


def _make_async_tool() -> BaseTool:
    @tool
    async def fetch(query: str) -> str:
        """Fetch."""
        return query

    return fetch


def _make_stateful_tool() -> BaseTool:
    @tool
    def my_orders(query: str, user: Annotated[str, InjectedState("user_id")]) -> str:
        """List orders."""
        return query

    return my_orders


class FakeSearch(BaseTool):
    name: str = "search"
    description: str = "Search."

    def _run(self, query: str) -> str:
        return query


def _other_body(query: str) -> str:
    return query


async def _other_coroutine(query: str) -> str:
    return query


def test_bare_decorator_over_tool() -> None:
    """The same object comes back, declared, and works as before."""

    @tool
    def search(query: str) -> str:
        """Search."""
        return query

    decorated = speculatable(search)
    assert decorated is search
    assert declared(search) == Contract()
    assert search.invoke({"query": "q"}) == "q"


def test_decorator_with_fields_over_tool() -> None:
    """Fields become the contract."""

    @speculatable(fresh_for_s=5, tags=["docs"])
    @tool
    def search(query: str) -> str:
        """Search."""
        return query

    assert declared(search) == Contract(fresh_for_s=5, tags=frozenset({"docs"}))


def test_empty_parentheses_and_bare_name_are_the_same() -> None:
    """`@speculatable()` is `@speculatable`."""
    assert declared(speculatable()(_make_tool())) == declared(speculatable(_make_tool()))


def test_function_on_an_existing_tool() -> None:
    """A tool one did not write is declared where it is used."""
    existing = _make_tool()
    assert speculatable(existing, fresh_for_s=5) is existing
    assert declared(existing) == Contract(fresh_for_s=5)


def test_declaring_twice_replaces() -> None:
    """The last word counts, in full."""
    given = speculatable(_make_tool(), fresh_for_s=5)
    speculatable(given, timeout_s=1)
    assert declared(given) == Contract(timeout_s=1)


def test_class_declaration() -> None:
    """Instances of a decorated class are declared, whatever their name."""

    @speculatable(deterministic=True)
    class Search(FakeSearch):
        pass

    class SameBody(Search):
        pass

    class OtherBody(Search):
        def _run(self, query: str) -> str:
            return query.upper()

    assert declared(Search(name="other")) == Contract(deterministic=True)
    assert declared(SameBody()) == Contract(deterministic=True)
    assert declared(OtherBody()) is None
    assert "not the one that was declared" in str(why_not(OtherBody()))
    assert Search().invoke({"query": "q"}) == "q"


@pytest.mark.parametrize("kind", [StructuredTool, Tool, BaseTool])
def test_a_class_without_a_body_cannot_be_declared(kind: type[BaseTool]) -> None:
    """It would declare every tool there is."""
    with pytest.raises(ContractError, match="one by one"):
        speculatable(kind, early=False)
    assert declared(_make_tool()) is None


def test_plain_function_names_the_right_order() -> None:
    """`@tool` above `@speculatable` is the likely mistake."""
    with pytest.raises(ContractError, match="put `@speculatable` above `@tool`"):
        speculatable(_other_body)  # type: ignore[type-var]
    with pytest.raises(TypeError):
        speculatable(early=False)(_other_coroutine)  # type: ignore[type-var]


@pytest.mark.parametrize(
    "target", ["search", [_make_tool()], int, object()], ids=["name", "list", "class", "object"]
)
def test_other_things_are_refused(target: Any) -> None:
    """Only tools carry contracts."""
    with pytest.raises(ContractError, match="only a tool or a tool class"):
        speculatable(target)


@pytest.mark.parametrize("fields", [{}, {"fresh_for_s": 5}])
def test_a_tool_that_can_never_run_early_is_an_error_at_declaration(fields: Any) -> None:
    """The message holds the tool, the reason and both ways out."""
    given = _make_stateful_tool()
    with pytest.raises(ContractError, match=r"'my_orders' can never run early: `user`") as raised:
        speculatable(given, **fields)
    assert "runtime.context" in str(raised.value)
    assert "early=False" in str(raised.value)
    assert declared(given) is None


def test_a_class_that_can_never_run_early_is_an_error_at_declaration() -> None:
    """The class's own signature is enough to know."""
    with pytest.raises(ContractError, match="'Handoff' can never run early"):

        @speculatable
        class Handoff(FakeSearch):
            def _run(self, query: str) -> Command[Any]:  # type: ignore[override]
                return Command()


def test_early_false_is_allowed_for_a_tool_that_can_never_run_early() -> None:
    """It only says that the tool changes nothing others read."""
    given = speculatable(_make_stateful_tool(), early=False)
    assert declared(given) == Contract(early=False)
    assert explain([given])[0].verdict == "not_early"


def test_what_depends_on_the_run_is_no_error() -> None:
    """A runtime may be used harmlessly, so the run decides."""

    @speculatable
    @tool
    def search(query: str, runtime: ToolRuntime) -> str:
        """Search."""
        return query

    assert why_not(search) is None


def test_wrong_fields_are_errors_before_anything_is_declared() -> None:
    """A bad value, a later field and an unknown one each keep the tool undeclared."""
    given = _make_tool()
    with pytest.raises(ValueError, match="fresh_for_s"):
        speculatable(given, fresh_for_s=-1)
    with pytest.raises(NotAvailableYet, match="not available yet"):
        speculatable(given, reuse="tenant")
    with pytest.raises(TypeError, match="fresh_for"):
        speculatable(given, fresh_for=5)  # type: ignore[call-arg]
    assert declared(given) is None


def test_b17_declaration_binds_to_the_object_not_to_its_name() -> None:
    """Of two tools called `act`, only the one that was declared may run early."""

    def act(query: str) -> str:
        """Act."""
        return query

    safe, dangerous = tool(act), _make_tool("act")
    speculatable(safe)
    assert declared(safe) == Contract()
    assert declared(dangerous) is None
    assert [it.verdict for it in explain([safe, dangerous])] == ["duplicate", "undeclared"]
    assert why_not(safe) is None
    by_name = ToolNode([safe, dangerous]).tools_by_name
    assert why_not(by_name["act"]) is not None


def test_a_forged_declaration_in_metadata_counts_for_nothing() -> None:
    """Servers write metadata, names, tags and extras."""
    given = _make_tool()
    given.metadata = {"_spectool_declaration": Contract(), "speculatable": True}
    given.tags = ["speculatable"]
    given.extras = {"speculatable": True}
    assert contract_of(given) is None


@pytest.mark.parametrize(
    "update",
    [None, {"description": "Other."}, {"metadata": {"a": 1}}, {"handle_tool_error": True}],
    ids=repr,
)
@pytest.mark.parametrize("deep", [False, True])
def test_a_copy_with_the_same_body_and_name_keeps_the_declaration(update: Any, deep: bool) -> None:
    """Frameworks copy tools to change words and handlers."""
    given = speculatable(_make_tool(), version="2")
    copied = given.model_copy(update=update, deep=deep)
    assert copied is not given
    assert declared(copied) == Contract(version="2")


@pytest.mark.parametrize(
    "update",
    [{"func": _other_body}, {"coroutine": _other_coroutine}, {"name": "other"}],
    ids=["func", "coroutine", "name"],
)
def test_a_copy_with_another_body_or_name_loses_the_declaration(update: Any) -> None:
    """Deny by default, and say that there was a declaration."""
    given = speculatable(_make_tool())
    copied = given.model_copy(update=update)
    assert declared(copied) is None
    assert explain([copied])[0].verdict == "undeclared"
    assert "not the one that was declared" in str(why_not(copied))
    assert declared(given) == Contract()


def test_a_copy_of_another_class_loses_the_declaration() -> None:
    """The class holds the body, so another class is another body."""

    class Loud(FakeSearch):
        def _run(self, query: str) -> str:
            return query.upper()

    given = speculatable(FakeSearch())
    copied = given.model_copy()
    object.__setattr__(copied, "__class__", Loud)
    assert declared(copied) is None


def test_a_declaration_shows_nowhere_else() -> None:
    """Dumps, schemas, comparisons and pickles are those of the undeclared tool."""
    given = FakeSearch()
    dumped, shown = given.model_dump(), repr(given)
    speculatable(given, version="2")
    assert given.model_dump() == dumped
    assert repr(given) == shown
    assert given == FakeSearch()
    assert dict(given) == dict(FakeSearch())
    assert declared(pickle.loads(pickle.dumps(given))) == Contract(version="2")  # noqa: S301


@pytest.mark.parametrize("given", [write_todos, *TodoListMiddleware().tools])
def test_write_todos_is_known_to_change_nothing_others_read(given: BaseTool) -> None:
    """LangChain's to-do tool never runs early and makes no other result stale."""
    assert contract_of(given) == Contract(early=False)
    assert explain([given])[0].verdict == "not_early"


def test_a_tool_that_is_merely_called_write_todos_is_unknown() -> None:
    """Names say nothing."""
    assert contract_of(_make_tool("write_todos")) is None


def test_own_declaration_stands_before_what_is_built_in() -> None:
    """Whoever declares a tool again knows better."""
    given = TodoListMiddleware().tools[0]
    speculatable(given, early=False, version="2")
    assert contract_of(given) == Contract(early=False, version="2")


@pytest.mark.parametrize("thing", [None, "search", _other_body, {"type": "web_search"}, int])
def test_what_is_no_tool_has_no_contract(thing: object) -> None:
    """Nothing is ever raised for a strange thing in a tool list."""
    assert contract_of(thing) is None


def test_why_not_is_none_for_a_tool_that_can_run_early() -> None:
    """No reason, no words."""
    assert why_not(speculatable(_make_tool())) is None


def test_undeclared_says_how_to_declare() -> None:
    """The default is no, with the way to change it."""
    assert "put `@speculatable` above `@tool`" in str(why_not(_make_tool()))
    assert explain([_make_tool()])[0].verdict == "undeclared"


def test_undeclared_tool_that_never_could_says_that_first() -> None:
    """Nobody should declare a tool only to be refused then."""
    (found,) = explain([_make_stateful_tool()])
    assert found.verdict == "structure"
    assert "graph's state" in found.reason


def test_gated_tools_never_run_early() -> None:
    """An approval stands before the tool, so before its guesses too."""
    given = speculatable(_make_tool())
    assert why_not(given, gated=["other"]) is None
    assert "approval" in str(why_not(given, gated=["search"]))
    assert explain([given], gated={"search"})[0].verdict == "gated"


def test_external_tools_need_the_policy() -> None:
    """B57: a guess that no call takes has still told a third party."""
    given = speculatable(_make_tool(), audience="external")
    for policy in (None, FakePolicy()):
        assert "allow_external" in str(why_not(given, policy=policy))
        assert explain([given], policy=policy)[0].verdict == "external"
    assert why_not(given, policy=FakePolicy(allow_external=True)) is None


@pytest.mark.parametrize("field", ["gated", "trust_mcp"])
def test_a_bare_string_is_no_list_of_names(field: str) -> None:
    """`"hub" in "github"` must not trust anybody."""
    with pytest.raises(ValueError, match=rf"`{field}` must be a list of names.*\['search'\]"):
        explain([], **{field: "search"})  # type: ignore[arg-type]


def test_explain_keeps_the_order_and_speaks_in_lines() -> None:
    """Every tool gets one line: those an agent runs, those a provider runs, and functions."""
    found = explain(
        [
            speculatable(_make_tool()),
            speculatable(_make_async_tool()),
            _make_stateful_tool(),
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "code_interpreter"},
            {},
            _other_body,
        ]
    )
    assert [it.early for it in found] == [True, True, False, False, False, False, False]
    assert [it.verdict for it in found] == ["run", "run", "structure", *["undeclared"] * 4]
    lines = [str(it) for it in found]
    assert lines[0] == "search: can run early"
    assert lines[1] == "fetch: can run early, in async runs only: it has no synchronous body"
    assert lines[2].startswith("my_orders: no, `user` receives the graph's state")
    assert lines[3] == "web_search: no, its provider runs it: nothing of it runs here"
    assert lines[4].startswith("code_interpreter: no,")
    assert lines[5].startswith("{}: no,")
    assert lines[6].startswith("_other_body: no, it is not a tool object")
    assert not any("\n" in line for line in lines)


def test_explanation_is_a_plain_value() -> None:
    """Two equal explanations are equal."""
    made = Explanation(tool="search", early=True, verdict="run", reason="can run early")
    assert explain([speculatable(_make_tool())]) == [made]


def test_injected_call_id_is_refused() -> None:
    """B18: the id of the model's call does not exist yet."""

    @tool
    def echo(query: str, call: Annotated[str, InjectedToolCallId]) -> str:
        """Echo."""
        return call

    with pytest.raises(ContractError, match="`call` receives the id"):
        speculatable(echo)
