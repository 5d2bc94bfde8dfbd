"""An agent that answers questions from the documentation of Python's standard library.

Its two tools ask an HTTP service on this machine, which answers after SERVICE_DELAY_S, as one
across a network would. Both only read, so both are declared safe to run early.
Try `python examples/search_agent.py --help`.
"""

import ssl
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import httpx
from agent_forms import agent_form, graph_form
from doc_service import serving, stdlib_index
from example import Example, run_from_command_line
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool
from scripted import DRAFT_TOKENS_PER_S, TOKENS_PER_S, paced
from search_script import draft_turn, main_turn

from langchain_spectool import Observer, Speculation, speculatable

SERVICE_DELAY_S = 0.5
"""What the service's answer takes."""
PROMPT = (
    "You answer questions about Python's standard library. Search its documentation, read what "
    "you found, and name the document each answer comes from."
)
QUESTION = (
    "Which function runs a command with arguments and returns a completed process? "
    "Which exception is raised when a timeout expires while waiting for a child process? "
    "Which function suggests close matches for a misspelled word? "
    "And how does it measure similarity?"
)
EXPECTED = (
    "subprocess.run",
    "subprocess.TimeoutExpired",
    "difflib.get_close_matches",
    "difflib.SequenceMatcher",
)
"""The documents a right answer names."""


def build_agent(  # noqa: PLR0913 - all but the first have defaults
    speculative: bool,  # noqa: FBT001 - which of the two arms: the one thing to choose
    *,
    model: BaseChatModel | None = None,
    draft: BaseChatModel | None = None,
    plain_graph: bool = False,
    speed: float = 1.0,
    observers: Sequence[Observer] = (),
) -> Example:
    """Start the service and build the agent that asks it.

    Without a model both models are scripted; `speed` divides every stated delay. The `observers`
    hear what speculation decides.
    """
    if model is None:
        model = paced(main_turn, TOKENS_PER_S * speed)
        draft = paced(draft_turn, DRAFT_TOKENS_PER_S * speed)
    running = ExitStack()
    address = running.enter_context(serving(stdlib_index(), SERVICE_DELAY_S / speed))
    form = graph_form if plain_graph else agent_form
    tools = doc_tools(address)
    # Without a draft, calls start from the main model's own stream.
    speculation = Speculation(tools, draft=draft, observers=observers) if speculative else None
    return Example(
        name="search_agent",
        graph=form(model, tools, PROMPT, speculation),
        inputs={"messages": [("user", QUESTION)]},
        speculation=speculation,
        goal="the answer names the right documents",
        verify=lambda messages: all(name in messages[-1].text for name in EXPECTED),
        close=running.close,
    )


def doc_tools(address: str) -> list[BaseTool]:
    """Make the tools that ask the service at an address, for sync and async agents alike."""
    certificates = ssl.create_default_context()  # loaded once, not by every client anew

    def get(path: str, **params: str) -> httpx.Response:
        with httpx.Client(base_url=address, verify=certificates, trust_env=False) as client:
            return client.get(path, params=params)

    async def aget(path: str, **params: str) -> httpx.Response:
        async with httpx.AsyncClient(
            base_url=address, verify=certificates, trust_env=False
        ) as client:
            return await client.get(path, params=params)

    def search_docs(query: str) -> list[dict[str, str]]:
        """Find documents; returns the ids and first lines of the best ones."""
        return get("/search", query=query).json()

    async def asearch_docs(query: str) -> list[dict[str, str]]:
        return (await aget("/search", query=query)).json()

    def read_doc(doc_id: str) -> str:
        """Read one document whole."""
        return get("/doc", id=doc_id).json()

    async def aread_doc(doc_id: str) -> str:
        return (await aget("/doc", id=doc_id)).json()

    return [
        speculatable(StructuredTool.from_function(search_docs, asearch_docs)),
        speculatable(StructuredTool.from_function(read_doc, aread_doc)),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example from the command line; returns the exit code."""
    print(
        f"the service takes {SERVICE_DELAY_S} s an answer, like one across a network; "
        f"scripted models write {TOKENS_PER_S:.0f} and {DRAFT_TOKENS_PER_S:.0f} tokens/s; "
        f"{len(stdlib_index().documents)} documents"
    )
    return run_from_command_line(build_agent, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
