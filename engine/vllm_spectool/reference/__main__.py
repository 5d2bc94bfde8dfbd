"""A server with the tool cache's API over a tiny deterministic model; it needs no vLLM."""

import argparse
import socket
import sys

import uvicorn

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool.reference.server import config
from vllm_spectool.reference.service import Reference, ReferenceSettings
from vllm_spectool.reference.styles import STYLES


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m vllm_spectool.reference", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--style", choices=sorted(STYLES), default="chatml")
    parser.add_argument("--token-s", type=float, default=0.02, help="seconds per token")
    parser.add_argument("--api-key", action="append", default=[])
    parser.add_argument("--max-resident-turns", type=int, default=8)
    parser.add_argument(
        "--allow-drift", action="store_true", help="go on where the template writes otherwise"
    )
    parser.add_argument("--off", action="store_true", help="leave the tool cache out")
    asked = parser.parse_args()
    settings = ReferenceSettings(
        api_keys=tuple(asked.api_key),
        continuations=not asked.off,
        token_s=asked.token_s,
        continuation_limits=ContinuationLimits(
            turns=asked.max_resident_turns, allow_drift=asked.allow_drift
        ),
    )
    service = Reference(style=STYLES[asked.style], settings=settings)
    _Announced(config(service, host=asked.host, port=asked.port)).run()


class _Announced(uvicorn.Server):
    """Says where it serves once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        sys.stdout.write(f"serving at http://{f'[{host}]' if ':' in host else host}:{port}/v1\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
