"""MCP tools that may run early because the operator trusts their server.

A server's hints are its own claims. They count only for servers the operator names, and only
together: read-only, idempotent and closed-world, each the boolean and none denied.

Which server a tool came from is never read from its name or `metadata`, both of which servers
write. `langchain-mcp-adapters` closes its tools over the name that the operator gave the
server in `MultiServerMCPClient({...})`; tools of every other origin need `from_mcp`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar, cast

from langchain_core.tools import BaseTool

from langchain_spectool._core.contracts import Contract, bodies_of, same_bodies
from langchain_spectool.errors import ContractError

_KEY = "_spectool_mcp_server"
_ADAPTER = "langchain_mcp_adapters.tools"
_TRUSTED = Contract(audience="internal")
# Each hint in both spellings: of the protocol, and of Python.
_READ_ONLY = ("readOnlyHint", "read_only_hint")
_IDEMPOTENT = ("idempotentHint", "idempotent_hint")
_OPEN_WORLD = ("openWorldHint", "open_world_hint")
_DESTRUCTIVE = ("destructiveHint", "destructive_hint")

ToolT = TypeVar("ToolT", bound=BaseTool)


def from_mcp(tools: Iterable[ToolT], *, server: str) -> list[ToolT]:
    """Record on each of `tools` that it came from the MCP server called `server`.

    This is the operator's word. Tools of `MultiServerMCPClient` need it only when they were
    loaded from a bare session. It trusts nothing yet: `trust_mcp=[server]` does.

    Returns:
        The same tool objects.

    Raises:
        ContractError: Not a tool, or a tool whose adapter names another server.
        ValueError: `server` is empty.
    """
    if not server:
        msg = "`server` must be the name that `trust_mcp` uses, got ''"
        raise ValueError(msg)
    marked = list(tools)
    for tool in marked:
        _check_origin(tool, server)
    for tool in marked:
        object.__setattr__(tool, _KEY, (server, bodies_of(tool)))
    return marked


def _check_origin(tool: object, server: str) -> None:
    if not isinstance(tool, BaseTool):
        msg = f"`from_mcp` takes LangChain tools made from MCP tools, got {tool!r}"
        raise ContractError(msg)
    known = _adapter_server(tool)
    if known not in {None, server}:
        msg = f"tool {tool.name!r} came from the MCP server {known!r}, not from {server!r}"
        raise ContractError(msg)


def mcp_server(tool: object) -> str | None:
    """Return the operator's name for the MCP server `tool` came from, or None if unknown."""
    mark: tuple[str, tuple[object, ...]] | None = getattr(tool, "__dict__", {}).get(_KEY)
    if mark is None:
        return _adapter_server(tool)
    server, bodies = mark
    return server if same_bodies(bodies, bodies_of(tool)) else None


def _adapter_server(tool: object) -> str | None:
    body = getattr(tool, "coroutine", None)
    if getattr(body, "__module__", None) != _ADAPTER:
        return None
    names: tuple[str, ...] = getattr(getattr(body, "__code__", None), "co_freevars", ())
    cells = dict(zip(names, getattr(body, "__closure__", None) or (), strict=False))
    server: object = getattr(cells.get("server_name"), "cell_contents", None)
    return server if isinstance(server, str) else None


def mcp_contract(tool: object, trusted: Collection[str]) -> Contract | None:
    """Return the contract of an MCP tool whose server is `trusted` and whose hints allow it."""
    return _TRUSTED if mcp_server(tool) in trusted and _denial(tool) is None else None


def mcp_reason(tool: object, trusted: Collection[str]) -> str | None:
    """Say why an MCP tool gets no contract; None if it gets one or is no MCP tool."""
    server = mcp_server(tool)
    if server in trusted:
        return _denial(tool)
    if server is not None:
        return f"the MCP server {server!r} is not among `trust_mcp`: name it there if you trust it"
    if any(_values(tool, _READ_ONLY)):
        return "it says it is read-only, but not which MCP server it came from: see `from_mcp`"
    return None


def _denial(tool: object) -> str | None:
    for spellings, wanted in ((_READ_ONLY, True), (_IDEMPOTENT, True), (_OPEN_WORLD, False)):
        values = list(_values(tool, spellings))
        if not values or any(value is not wanted for value in values):
            found = " and ".join(map(repr, values)) or "nothing"
            return (
                f"its MCP server must say `{spellings[0]}={wanted}` and says {found}: "
                "declare it with `speculatable(tool)` if you know better"
            )
    if any(value is not False for value in _values(tool, _DESTRUCTIVE)):
        return "its MCP server calls it destructive: it runs only when the model calls it"
    return None


def _values(tool: object, spellings: tuple[str, str]) -> Iterator[object]:
    """Yield what `metadata` holds for one hint, in every place adapters put it; None is absent."""
    metadata = getattr(tool, "metadata", None)
    places = (
        metadata,
        _item(metadata, "annotations"),
        _item(_item(_item(metadata, "mcp"), "tool"), "annotations"),
    )
    for place in places:
        for spelling in spellings:
            value = _item(place, spelling)
            if value is not None:
                yield value


def _item(mapping: object, key: str) -> object:
    return cast("Mapping[str, object]", mapping).get(key) if isinstance(mapping, Mapping) else None
