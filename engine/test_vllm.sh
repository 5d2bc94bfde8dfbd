#!/usr/bin/env bash
# Checks the plugin's types and runs the tests against a real vLLM: `make test-engine`. Arguments go to
# pytest.
# Where a wheel cannot be had, says so in one line and runs the reference engine's tests instead.
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=${SPECTOOL_PYTHON:-../.venv/bin/python}
HOME_DIR=${SPECTOOL_ENGINE_HOME:-$PWD/.vllm}
code=0
./set_up_vllm.sh || code=$?
case $code in
0)
	"$PYTHON" -m pyright -p pyright.vllm.json --pythonpath "$HOME_DIR/venv/bin/python"
	SPECTOOL_VLLM=$HOME_DIR "$PYTHON" -m pytest tests/vllm "$@"
	;;
3) "$PYTHON" -m pytest tests "$@" ;;
*) exit "$code" ;;
esac
