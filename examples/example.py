"""What both examples share: the parts of one, and the command line that runs it."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph.state import CompiledStateGraph

from langchain_spectool import Speculation


@dataclass(frozen=True, kw_only=True)
class Example:
    """One agent, ready to run once; close it, or use it in a `with` block."""

    name: str
    graph: CompiledStateGraph[Any]
    inputs: dict[str, Any]
    speculation: Speculation | None
    """What speculates for the agent; None in the stock arm."""
    goal: str
    verify: Callable[[Sequence[BaseMessage]], bool]
    """Says whether the run that left these messages reached the goal."""
    close: Callable[[], None]

    def __enter__(self) -> Self:
        """Enter a block that closes the example."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop and remove what the example started."""
        self.close()


def comparable(messages: Sequence[BaseMessage]) -> list[tuple[Any, ...]]:
    """Reduce messages to what must be the same with and without speculation."""
    return [
        (
            each.type,
            each.content,
            [(made["name"], made["args"]) for made in getattr(each, "tool_calls", [])],
            getattr(each, "artifact", None),
            getattr(each, "status", None),
        )
        for each in messages
    ]


def run_from_command_line(
    build_agent: Callable[..., Example], about: str, argv: Sequence[str] | None
) -> int:
    """Run an example's arms one after the other; 0 if every arm reached the goal."""
    options = _parser(about).parse_args(argv)
    model, draft = _real_models(options)
    arms = [False, True] if options.arm == "both" else [options.arm == "speculative"]
    seen, reached = [], True
    for speculative in arms:
        with build_agent(
            speculative, model=model, draft=draft, plain_graph=options.graph, speed=options.speed
        ) as example:
            messages, ok = asyncio.run(_run(example, speculative=speculative))
        seen.append(comparable(messages))
        reached = reached and ok
    if len(seen) > 1:
        print(f"same messages in both arms: {'yes' if seen[0] == seen[1] else 'no'}")
    return 0 if reached else 1


async def _run(example: Example, *, speculative: bool) -> tuple[list[BaseMessage], bool]:
    print(f"== {example.name}, {'speculative' if speculative else 'stock'}")
    start_s = time.perf_counter()
    messages: list[BaseMessage] = []
    async for state in example.graph.astream(example.inputs, stream_mode="values"):
        for message in state["messages"][len(messages) :]:
            print(f"{time.perf_counter() - start_s:6.2f} s  {_line(message)}")
        messages = state["messages"]
    wall_s = time.perf_counter() - start_s
    ok = example.verify(messages)
    print(f"{wall_s:.2f} s; {example.goal}: {'yes' if ok else 'no'}")
    if example.speculation is not None:
        print(example.speculation.report())
    print()
    return messages, ok


def _line(message: BaseMessage) -> str:
    """Return one line that shows what a message says or asks for."""
    if isinstance(message, AIMessage):
        calls = [
            f"{made['name']}({', '.join(repr(value)[:60] for value in made['args'].values())})"
            for made in message.tool_calls
        ]
        return f"model  {message.text}" + "".join(f"\n{'':17} -> {each}" for each in calls)
    first, _, rest = message.text.partition("\n")
    more = f" (and {rest.count(chr(10)) + 1} lines)" if rest else ""
    who = "tool " if isinstance(message, ToolMessage) else "user "
    return f"{who}  {first[:90]}{more}"


def _parser(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", choices=["both", "stock", "speculative"], default="both")
    parser.add_argument("--graph", action="store_true", help="a StateGraph built by hand")
    parser.add_argument("--speed", type=_positive, default=1.0, help="divides every stated delay")
    parser.add_argument("--model", help="provider:name of a real main model")
    parser.add_argument("--draft", help="provider:name of a real draft model")
    parser.add_argument("--base-url", help="where both real models are served")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        msg = f"must be a number above 0, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _real_models(
    options: argparse.Namespace,
) -> tuple[BaseChatModel | None, BaseChatModel | None]:
    """Make the models named on the command line.

    A scripted model can't draft for a real one, so `--draft` alone is refused.
    """
    if options.model is None and (options.draft or options.base_url):
        sys.exit("--draft and --base-url go with --model: name the main model too")
    where = {"base_url": options.base_url} if options.base_url else {}
    names = (options.model, options.draft)
    model, draft = (init_chat_model(name, **where) if name else None for name in names)
    return model, draft
