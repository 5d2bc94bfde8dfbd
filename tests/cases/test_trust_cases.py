"""Cases of kind 6: whose word counts, who hears of a guess, and who is told nothing."""

from typing import Any

import pytest
from harness import Form, Rehearsal, Scene, Shape
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool, StructuredTool, tool

from langchain_spectool import Policy, speculatable
from langchain_spectool.graph.mcp_trust import from_mcp
from langchain_spectool.testing import calls, text

SAFE = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
SAFE_IN_PYTHON = {"read_only_hint": True, "idempotent_hint": True, "open_world_hint": False}

# What a server says, whether the operator trusts it, and whether its tool may run early.
CLAIMS: list[Any] = [
    pytest.param({"readOnlyHint": True}, False, False, id="untrusted"),
    pytest.param(SAFE, False, False, id="untrusted-and-safe"),
    pytest.param({"readOnlyHint": True}, True, False, id="read-only-alone"),
    pytest.param(SAFE, True, True, id="safe"),
    pytest.param(SAFE_IN_PYTHON, True, True, id="safe-in-python"),
    pytest.param({"readOnlyHint": "true", "idempotentHint": "true"}, True, False, id="strings"),
    pytest.param({**SAFE, "destructiveHint": True}, True, False, id="contradiction"),
    pytest.param(None, True, False, id="absent"),
    pytest.param({**SAFE, "read_only_hint": False}, True, False, id="conflicting-spellings"),
    pytest.param({**SAFE, "openWorldHint": True}, True, False, id="B57-open-world"),
]


@pytest.mark.parametrize(("hints", "trusted", "allowed"), CLAIMS)
async def test_b53_claims_of_a_server(
    hints: Any, trusted: bool, allowed: bool, form: Form, ran: list[Any]
) -> None:
    """B53 B57: a server's hints count if the operator trusts it, and only all together."""

    async def body(query: str) -> tuple[str, None]:
        ran.append(query)
        return f"found {query}", None

    made = StructuredTool(
        name="search",
        description="Search.",
        args_schema={"type": "object", "properties": {"query": {"type": "string"}}},
        coroutine=body,
        response_format="content_and_artifact",
        metadata=None if hints is None else {"annotations": hints},
    )
    scene = Scene(
        turns=[calls(("search", {"query": "right"})), text("done")],
        tools=from_mcp([made], server="github"),
        form=form,
    )
    servers = ["github"] if trusted else ["gitlab"]
    played = Rehearsal(scene, [("search", {"query": "wrong"})], trust_mcp=servers)
    ours = await played.run()
    assert ours.tools == [("c0", "success", "found right")]
    assert ran == (["wrong", "right"] if allowed else ["right"])


@pytest.mark.parametrize("name", ["get_order", "read_only_search", "speculatable"])
async def test_b53_names_and_metadata_declare_nothing(
    name: str, shape: Shape, ran: list[Any]
) -> None:
    """B53: neither a harmless name nor what is written in the metadata is a declaration."""

    def body(x: str) -> str:
        ran.append(x)
        return x

    made = StructuredTool.from_function(
        body,
        name=name,
        description="Reads.",
        metadata={"speculatable": True, "_spectool_declaration": True, **SAFE},
        tags=["read-only", "speculatable"],
    )
    scene = Scene(turns=[calls((name, {"x": "1"})), text("done")], tools=[made], **shape)
    played = Rehearsal(scene, [(name, {"x": "1"})])
    assert (await played.run()).tools == [("c0", "success", "1")]
    assert ran == ["1"]
    assert played.report.guesses == 0


class Audit(AgentMiddleware[Any, Any, Any]):
    """Notes every tool call that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.seen.append(request.tool_call["args"])
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.seen.append(request.tool_call["args"])
        return await handler(request)


def _search(ran: list[Any], **fields: Any) -> BaseTool:
    @speculatable(**fields)
    @tool
    def search(q: str) -> str:
        """Search."""
        ran.append(q)
        return f"found {q}"

    return search


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_b56_audit_hears_of_committed_calls_only(
    where: str, way: Any, ran: list[Any]
) -> None:
    """B56: other middleware sees each committed call once, and of a wrong guess nothing."""
    audit = Audit()
    scene = Scene(
        turns=[calls(("search", {"q": "right"})), text("done")], tools=[_search(ran)], way=way
    )
    scene.add(audit, where)
    guesses = [("search", {"q": "wrong"}), ("search", {"q": "right"})]
    played = Rehearsal(scene, guesses)
    await played.run()
    assert audit.seen == [{"q": "right"}]
    assert sorted(ran) == ["right", "wrong"]


async def test_b56_each_wasted_run_leaves_one_record(shape: Shape, ran: list[Any]) -> None:
    """B56: what ran and was dropped is on record once, with its tool, reason, source and time."""
    scene = Scene(
        turns=[calls(("search", {"q": "right"})), text("done")], tools=[_search(ran)], **shape
    )
    played = Rehearsal(scene, [("search", {"q": "wrong"}), ("search", {"q": "worse"})])
    await played.run()
    records = played.events("discarded")
    assert [(it.tool, it.verdict, it.source) for it in records] == [
        ("search", "unclaimed", "oracle")
    ] * 2
    assert all(it.spent_s >= 0 and it.started_s is not None for it in records)
    assert played.report.wasted == 2


URLS = ("https://x.test/unsubscribe?token=1", "https://y.test/?user=ann%40example.test")


def _fetching(ran: list[Any], shape: Shape) -> Scene:
    @speculatable(audience="external")
    @tool
    def fetch_url(url: str) -> str:
        """Fetch a page."""
        ran.append(url)
        return "page"

    @tool
    def inbox() -> str:
        """Read the inbox."""
        return " ".join(URLS)

    turns = [calls(("inbox", {})), text("I do not fetch those.")]
    return Scene(turns=turns, tools=[fetch_url, inbox], **shape)


GUESSED = [("fetch_url", {"url": url}) for url in URLS]


async def test_b57_nothing_leaves_without_the_operators_word(shape: Shape, ran: list[Any]) -> None:
    """B57: a tool whose arguments third parties see makes no request for a mere guess."""
    played = Rehearsal(_fetching(ran, shape), GUESSED, GUESSED)
    await played.run()
    assert ran == []
    assert played.report.guesses == 0


async def test_b57_operator_may_allow_it(shape: Shape, ran: list[Any]) -> None:
    """B57: the same tool runs early once the policy says so."""
    policy = Policy(allow_external=True)
    await Rehearsal(_fetching(ran, shape), GUESSED, policy=policy).run()
    assert sorted(ran) == sorted(URLS)


@pytest.mark.parametrize("switch", ["run", "process", "policy"])
@pytest.mark.parametrize("mode", ["off", "shadow"])
async def test_b57_off_switch(
    switch: str, mode: Any, form: Form, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B57: a run of one tenant, a process or a policy can switch all early runs off."""
    if switch == "process":
        monkeypatch.setenv("SPECTOOL_MODE", mode)
    scene = Scene(
        turns=[calls(("search", {"q": "right"})), text("done")], tools=[_search(ran)], form=form
    )
    policy = Policy(mode=mode) if switch == "policy" else None
    played = Rehearsal(scene, [("search", {"q": "right"})], policy=policy)
    config = {"configurable": {"speculation": mode}} if switch == "run" else None
    ours = await played.run(config)
    assert ours.said == (await scene.stock()).said
    assert ran == ["right", "right"]
    assert played.report.hits == 0
    assert played.report.claims == ({} if mode == "off" else {"shadow_hit": 1})
