"""`python -m vllm_spectool.reference --port 8000`."""

import argparse

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
    parser.add_argument("--off", action="store_true", help="leave the tool cache out")
    asked = parser.parse_args()
    settings = ReferenceSettings(
        api_keys=tuple(asked.api_key),
        continuations=not asked.off,
        token_s=asked.token_s,
        continuation_limits=ContinuationLimits(turns=asked.max_resident_turns),
    )
    service = Reference(style=STYLES[asked.style], settings=settings)
    uvicorn.Server(config(service, host=asked.host, port=asked.port)).run()


if __name__ == "__main__":
    main()
