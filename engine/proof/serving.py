"""Starts the servers of the proof, one at a time."""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests" / "vllm" / "live"))

from langchain_spectool.bench.engine.server import Start, started  # noqa: E402
from live_client import Client  # noqa: E402 - found by the line above

HOME = Path(os.environ.get("SPECTOOL_ENGINE_HOME", HERE.parent / ".vllm"))
PYTHON = HOME / "venv" / "bin" / "python"
FLAGS = ("--served-model-name", "smollm2", "--dtype", "float32", "--enforce-eager")
DRAFTING = ("--draft-arguments", "--draft-max-running", "8")
STUBS = HERE / "stubs"
ONE_THREAD = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that runs."""

    client: Client
    log: Path


@contextmanager
def serving(
    model: Path, *flags: str, tiny: bool = False, asynchronous: bool = False
) -> Generator[Running]:
    """Serve a model.

    Args:
        model: Its folder.
        flags: vLLM's and vllm-spectool's, beside `FLAGS`.
        tiny: Whether the model is not worth waiting for a second thread.
        asynchronous: Whether vLLM may schedule asynchronously, over streams that do nothing.

    Raises:
        SpectoolError: The server does not come up.
    """
    changes = dict(ONE_THREAD) if tiny else {}
    if asynchronous:
        before = os.environ.get("PYTHONPATH", "")
        changes["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STUBS), before]))
    with (
        environ(changes),
        started(Start(python=PYTHON, model=model, flags=[*FLAGS, *flags])) as server,
    ):
        client = Client(server.url)
        with client.http:
            yield Running(client=client, log=server.log or Path(os.devnull))


@contextmanager
def environ(changes: Mapping[str, str]) -> Generator[None]:
    """Change the environment for a while."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
