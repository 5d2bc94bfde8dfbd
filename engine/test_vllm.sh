#!/usr/bin/env bash
# Runs the tests against a real vLLM: `make test-engine`. Arguments go to pytest.
# Where a wheel cannot be had, says so in one line and runs the reference engine's tests instead.
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=${SPECTOOL_PYTHON:-../.venv/bin/python}
code=0
./set_up_vllm.sh || code=$?
case $code in
0) SPECTOOL_VLLM=${SPECTOOL_ENGINE_HOME:-$PWD/.vllm} "$PYTHON" -m pytest tests/vllm "$@" ;;
3) "$PYTHON" -m pytest tests "$@" ;;
*) exit "$code" ;;
esac
