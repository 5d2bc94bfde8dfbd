"""One real vLLM server on loopback for all tests, started the way a user starts it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.append(str(Path(__file__).parent))
from live_client import Client

collect_ignore = [] if os.environ.get("SPECTOOL_DRAFTS") == "1" else ["test_drafts.py"]
"""Drafts need a server of their own, and as much time again."""

HOME = Path(os.environ["SPECTOOL_VLLM"])
TEMPLATE = Path(__file__).parent.parent / "smollm2_tools.jinja"
START_S = 240.0
STOP_S = 30.0
API_KEY = "sk-live"
FLAGS = {
    "--served-model-name": "smollm2",
    "--host": "127.0.0.1",
    "--api-key": API_KEY,
    "--dtype": "float32",
    "--max-model-len": "2048",
    "--max-num-seqs": "16",
    "--block-size": "32",  # a CPU's 128 has a round trip compute most of these prompts anew
    "--tool-call-parser": "hermes",
    "--chat-template": str(TEMPLATE),
}
ENVIRON = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that `vllm-spectool serve` started; its log is shown if it dies."""
    port, log = free_port(), tmp_path_factory.mktemp("vllm") / "server.log"
    flags = [part for pair in FLAGS.items() for part in pair]
    command = [
        *("nice", "-n", "10", str(HOME / "venv/bin/vllm-spectool"), "serve"),
        *(str(HOME / "smollm2"), "--max-resident-turns", "3"),
        *(*flags, "--port", str(port), "--enforce-eager"),
    ]
    environ = {**os.environ, **ENVIRON, "PATH": f"{HOME / 'venv/bin'}:{os.environ['PATH']}"}
    with log.open("w") as output:
        # A session of its own: vLLM's processes end with it.
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environ, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(process, address, log)
        yield address
        assert process.poll() is None, log.read_text()[-4000:]
    finally:
        _stop(process)


@pytest.fixture(scope="session")
def api_key() -> str:
    """The key that the server asks for."""
    return API_KEY


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[Client]:
    """A client that has the server's key."""
    made = Client(url, headers={"Authorization": f"Bearer {API_KEY}"})
    with made.http:
        yield made


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            if httpx.get(f"{address}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(f"no server after {START_S} s\n{log.read_text()[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
