"""What a server with a tool cache saves over the round trip, measured over HTTP."""

import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Measure, print, and return the exit status: 1 for a missed bar, 2 for no measurement."""
    try:
        command = import_module("langchain_spectool.bench.engine.command")
    except ModuleNotFoundError as error:
        print(
            f"spectool bench engine: {error.name!r} is not installed: "
            "pip install 'langchain-spectool[engine]'",
            file=sys.stderr,
        )
        return 2
    return command.main(argv)
