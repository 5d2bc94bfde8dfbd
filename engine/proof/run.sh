#!/usr/bin/env bash
# Proves on a real vLLM that the tool cache changes nothing a client reads: `make proof-engine`.
# Takes up to 90 minutes and writes proof/result.json. Arguments go to prove.py.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${SPECTOOL_PYTHON:-../.venv/bin/python}
code=0
SPECTOOL_REQUIRE_ENGINE=1 ./set_up_vllm.sh || code=$?
[ "$code" -eq 0 ] || exit "$code"
exec timeout --signal INT --kill-after 60 90m nice "$PYTHON" proof/prove.py "$@"
