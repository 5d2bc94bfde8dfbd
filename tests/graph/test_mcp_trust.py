"""MCP hints count for trusted servers only, and only all together."""

from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool
from mcp.types import Tool as McpTool
from mcp.types import ToolAnnotations

from langchain_spectool._core.contracts import Contract, declared
from langchain_spectool.errors import ContractError
from langchain_spectool.graph.declare import contract_of, explain, speculatable, why_not
from langchain_spectool.graph.mcp_trust import from_mcp, mcp_contract, mcp_reason, mcp_server

SAFE = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
SAFE_IN_PYTHON = {"read_only_hint": True, "idempotent_hint": True, "open_world_hint": False}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}


async def _call(**arguments: Any) -> tuple[str, None]:
    return str(arguments), None


def _make(metadata: Any, server: str | None = "github") -> BaseTool:
    made = StructuredTool(
        name="search",
        description="",
        args_schema=SCHEMA,
        coroutine=_call,
        response_format="content_and_artifact",
    )
    made.metadata = metadata
    return made if server is None else from_mcp([made], server=server)[0]


def adapted(
    hints: dict[str, Any] | None, server: str | None = "github", **options: Any
) -> BaseTool:
    """Make a tool as `MultiServerMCPClient.get_tools` does, without a server."""
    annotations = None if hints is None else ToolAnnotations.model_validate(hints)
    made = McpTool(name="search", inputSchema=SCHEMA, annotations=annotations)
    return convert_mcp_tool_to_langchain_tool(
        None,
        made,
        connection={"transport": "stdio", "command": "false", "args": []},
        server_name=server,
        **options,
    )


# Every way a tool may present its claim, and whether a trusted server's tool runs early then.
CLAIMS: list[tuple[str, dict[str, Any] | None, bool]] = [
    ("read-only alone is not safe to repeat", {"readOnlyHint": True}, False),
    ("all three", SAFE, True),
    ("all three, spelled as in Python", SAFE_IN_PYTHON, True),
    ("strings", {"readOnlyHint": "true", "idempotentHint": "true"}, False),
    ("all strings", {key: str(value).lower() for key, value in SAFE.items()}, False),
    ("numbers", {"readOnlyHint": 1, "idempotentHint": 1, "openWorldHint": 0}, False),
    (
        "read-only and destructive, closed world unsaid",
        {"readOnlyHint": True, "destructiveHint": True, "idempotentHint": True},
        False,
    ),
    ("destructive denies all", {**SAFE, "destructiveHint": True}, False),
    ("destructive in Python's spelling", {**SAFE, "destructive_hint": True}, False),
    ("destructive as a string", {**SAFE, "destructiveHint": "no"}, False),
    ("not destructive", {**SAFE, "destructiveHint": False}, True),
    ("absent", None, False),
    ("empty", {}, False),
    ("conflicting spellings", {"readOnlyHint": True, "read_only_hint": False}, False),
    ("conflict beside all three", {**SAFE, "read_only_hint": False}, False),
    ("conflict about repeating", {**SAFE, "idempotent_hint": False}, False),
    ("conflict about the world", {**SAFE, "open_world_hint": True}, False),
    ("both spellings agree", {**SAFE, **SAFE_IN_PYTHON}, True),
    ("unsaid is absent, not a conflict", {**SAFE, "read_only_hint": None}, True),
    (
        "open world sends arguments to third parties",
        {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True},
        False,
    ),
    ("open world unsaid", {"readOnlyHint": True, "idempotentHint": True}, False),
    ("not idempotent", {**SAFE, "idempotentHint": False}, False),
]

PLACES = {
    "flat": lambda hints: hints,
    "annotations": lambda hints: {"annotations": hints},
    "mcp": lambda hints: {"mcp": {"tool": {"annotations": hints}}},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("hints", "allowed"), [case[1:] for case in CLAIMS], ids=[case[0] for case in CLAIMS]
)
def test_b53_claims_of_a_trusted_server(place: str, hints: Any, allowed: bool) -> None:
    """Read in every place; only booleans count; contradiction or absence is a no."""
    given = _make(PLACES[place](hints))
    expected = Contract(audience="internal") if allowed else None
    assert mcp_contract(given, ["github"]) == expected
    assert contract_of(given, trust_mcp=["github"]) == expected
    assert (mcp_reason(given, ["github"]) is None) is allowed
    assert (why_not(given, trust_mcp=["github"]) is None) is allowed


@pytest.mark.parametrize("trusted", [[], ["gitlab"], ["git"], ["GitHub"]], ids=repr)
def test_b53_a_server_nobody_trusts_is_not_believed(trusted: list[str]) -> None:
    """A self-description is no permission."""
    given = _make(SAFE)
    assert mcp_contract(given, trusted) is None
    assert "'github' is not among `trust_mcp`" in str(why_not(given, trust_mcp=trusted))


def test_b57_open_world_says_why() -> None:
    """The refusal names the hint and the way around it."""
    reason = why_not(_make({**SAFE, "openWorldHint": True}), trust_mcp=["github"])
    assert "`openWorldHint=False` and says True" in str(reason)
    assert "speculatable(tool)" in str(reason)


def test_absent_hints_say_why() -> None:
    """Nothing said is named as such."""
    assert "says nothing" in str(why_not(_make(None), trust_mcp=["github"]))


def test_places_that_contradict_each_other_are_a_no() -> None:
    """A denial anywhere wins."""
    given = _make({**SAFE, "annotations": {"readOnlyHint": False}})
    assert mcp_contract(given, ["github"]) is None


@pytest.mark.parametrize("metadata", [{"annotations": "readOnlyHint"}, {"mcp": {"tool": None}}])
def test_strange_metadata_is_a_no(metadata: Any) -> None:
    """Servers may put anything anywhere."""
    assert mcp_contract(_make(metadata), ["github"]) is None


def test_adapter_tools_carry_the_operators_name_of_their_server() -> None:
    """The name given to `MultiServerMCPClient` is found without any further word."""
    given = adapted(SAFE)
    assert mcp_server(given) == "github"
    assert contract_of(given, trust_mcp=["github"]) == Contract(audience="internal")
    assert contract_of(given, trust_mcp=["gitlab"]) is None
    (found,) = explain([given], trust_mcp=["github"])
    assert str(found) == "search: can run early, in async runs only: it has no synchronous body"


def test_adapter_tools_without_hints_stay_refused() -> None:
    """Absent hints arrive as None from the adapter."""
    for hints in (None, {}, {"readOnlyHint": True}):
        assert contract_of(adapted(hints), trust_mcp=["github"]) is None


def test_a_name_prefix_is_never_read() -> None:
    """A server may call its tool `github_search`; who it is stands elsewhere."""
    forged = adapted(SAFE, server="evil").model_copy(update={"name": "github_search"})
    prefixed = adapted(SAFE, tool_name_prefix=True)
    assert contract_of(forged, trust_mcp=["github"]) is None
    assert prefixed.name == "github_search"
    assert contract_of(prefixed, trust_mcp=["github"]) is not None


def test_metadata_never_names_the_server() -> None:
    """A server may claim to be any other."""
    forged = adapted(SAFE, server=None)
    forged.metadata = {
        **SAFE,
        "server_name": "github",
        "_spectool_mcp_server": "github",
        "mcp": {"server": {"name": "github"}},
    }
    assert mcp_server(forged) is None
    assert contract_of(forged, trust_mcp=["github"]) is None
    assert "`from_mcp`" in str(why_not(forged, trust_mcp=["github"]))


def test_tools_of_a_bare_session_are_named_by_the_operator() -> None:
    """`load_mcp_tools(session)` knows no name; `from_mcp` gives one and trusts nothing."""
    given = adapted(SAFE, server=None)
    assert from_mcp([given], server="local") == [given]
    assert mcp_server(given) == "local"
    assert contract_of(given) is None
    assert contract_of(given, trust_mcp=["local"]) is not None


def test_from_mcp_keeps_the_objects() -> None:
    """The same tools come back, so it wraps any call that returns tools."""
    given = adapted(SAFE)
    assert from_mcp([given], server="github")[0] is given


def test_from_mcp_contradicting_the_adapter_is_an_error() -> None:
    """Then one of the two is wrong, and no tool of the list is marked."""
    unnamed, foreign = adapted(SAFE, server=None), adapted(SAFE, server="evil")
    with pytest.raises(ContractError, match="came from the MCP server 'evil', not from 'github'"):
        from_mcp([unnamed, foreign], server="github")
    assert mcp_server(unnamed) is None
    assert mcp_server(foreign) == "evil"


def test_from_mcp_takes_tools_and_a_name() -> None:
    """Anything else is a mistake."""
    with pytest.raises(ContractError, match="takes LangChain tools"):
        from_mcp(["search"], server="github")  # type: ignore[list-item]
    with pytest.raises(ValueError, match="`server` must be the name"):
        from_mcp([_make(SAFE, server=None)], server="")


def test_a_copy_keeps_its_origin_only_with_its_body() -> None:
    """Another coroutine calls nobody knows whom."""

    async def other(**arguments: Any) -> tuple[str, None]:
        return "", None

    given = _make(SAFE)
    assert mcp_server(given.model_copy(update={"description": "Other."})) == "github"
    assert mcp_server(given.model_copy(update={"coroutine": other})) is None


def test_own_declaration_stands_before_hints() -> None:
    """Who declares the tool knows better, in both directions."""
    denied = speculatable(adapted({**SAFE, "openWorldHint": True}), audience="external")
    assert contract_of(denied, trust_mcp=["github"]) == Contract(audience="external")
    kept = speculatable(adapted(SAFE), early=False)
    assert contract_of(kept, trust_mcp=["github"]) == Contract(early=False)
    renamed = kept.model_copy(update={"name": "other"})
    assert declared(renamed) is None
    assert contract_of(renamed, trust_mcp=["github"]) is None


def test_tools_from_elsewhere_have_no_server() -> None:
    """Ordinary tools, and things that only look like the adapter's, are nobody's."""

    @tool
    def search(query: str) -> str:
        """Search."""
        return query

    async def lookalike(**arguments: Any) -> tuple[str, None]:
        return "", None

    lookalike.__module__ = "langchain_mcp_adapters.tools"
    for given in (search, _make(None, server=None).model_copy(update={"coroutine": lookalike})):
        assert mcp_server(given) is None
        assert mcp_reason(given, ["github"]) is None
    assert mcp_server("search") is None
