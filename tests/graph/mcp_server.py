"""A small MCP server over stdio; writes a line to the file it is given for every call."""

import asyncio
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

LOG = Path(sys.argv[1])
SAFE = ToolAnnotations(readOnlyHint=True, idempotentHint=True, openWorldHint=False)

server = FastMCP("notes", log_level="ERROR")


def _note(line: str) -> None:
    with LOG.open("a") as log:
        log.write(f"{line}\n")


@server.tool(annotations=SAFE)
async def search_notes(query: str, takes_s: float = 0.0) -> str:
    """Search the notes, for so many seconds."""
    _note(f"search {query}")
    await asyncio.sleep(takes_s)
    _note(f"found {query}")
    return f"notes about {query}"


@server.tool()
async def add_note(content: str) -> str:
    """Add a note."""
    _note(f"add {content}")
    return "added"


if __name__ == "__main__":
    server.run("stdio")
