#!/usr/bin/env bash
# Runs `spectool bench engine` on a machine with a GPU and without a network.
set -euo pipefail

readonly LIMIT_S=560

usage() {
	cat <<'END'
Usage: gpu_check.sh --wheels FOLDER --model FOLDER [--python PATH] [--out FILE] [-- VLLM_FLAG ...]

Measures the tool cache of vLLM on this machine's GPU in under ten minutes and writes one JSON file.
Nothing is fetched: all packages come from the wheels.

  --wheels FOLDER  wheels of langchain-spectool and vllm-spectool and of all they and vLLM need; with
                   a network, in a checkout: pip wheel --wheel-dir FOLDER vllm==0.32.0 ./engine '.[engine]'
  --model FOLDER   a model with a chat template that renders tools in hermes style; another style
                   needs its parser: -- --tool-call-parser llama3_json --chat-template FILE
  --python PATH    interpreter of an environment that has vLLM 0.32 already; vllm-spectool is put
                   into a temporary folder beside it, and the environment stays as it is
  --out FILE       where the JSON goes (default: gpu_check.json)
  --quick          all of it small, to see that it works

Exit status: 0 all bars are met; 1 one is missed; 2 something is missing, as the last line says.
END
}

refuse() {
	echo "gpu_check.sh: $1" >&2
	exit 2
}

has_wheel() { # has_wheel NAME: whether the folder has one of that distribution
	compgen -G "$wheels/$1-*.whl" >/dev/null
}

wheels='' model='' python='' out=gpu_check.json quick=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--quick) quick=(--quick) ;;
	--wheels | --model | --python | --out)
		[ $# -gt 1 ] || refuse "$1 needs a value"
		printf -v "${1#--}" %s "$2"
		shift
		;;
	--) shift && break ;;
	*) refuse "unknown argument $1; see --help" ;;
	esac
	shift
done

[ -n "$wheels" ] || refuse "no wheels: give --wheels FOLDER; see --help"
[ -n "$model" ] || refuse "no model: give --model FOLDER; see --help"
[ -d "$wheels" ] || refuse "there is no folder $wheels"
[ -f "$model/config.json" ] || refuse "$model is no model folder: it has no config.json"
for each in langchain_spectool vllm_spectool httpx; do
	has_wheel "$each" || refuse "$wheels has no wheel of $each"
done
command -v nvidia-smi >/dev/null || refuse "no nvidia-smi: this machine has no NVIDIA GPU"
nvidia-smi >/dev/null 2>&1 || refuse "nvidia-smi fails: the GPU cannot be used"
touch "$out" 2>/dev/null || refuse "$out cannot be written"
base=${python:-$(command -v python3.12 || command -v python3.11 || command -v python3)} ||
	refuse "no python3"
"$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	refuse "$base is no Python of 3.11 or newer"
if [ -n "$python" ]; then
	"$python" -c 'import vllm' 2>/dev/null || refuse "$python cannot import vllm"
else
	has_wheel vllm || refuse "$wheels has no wheel of vllm: add it, or give --python"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/install.log

install() { # install PYTHON REQUIREMENT ...
	"$1" -m pip install -q --disable-pip-version-check --no-index --find-links "$wheels" "${@:2}" \
		>"$log" 2>&1 || refuse "cannot install ${*:2}: $(grep -m 1 ERROR "$log" || tail -n 1 "$log")"
}

# The client in an environment of its own: LangChain has no place in the server's.
"$base" -m venv "$work/client" >"$log" 2>&1 || refuse "$base makes no virtual environment"
install "$work/client/bin/python" 'langchain-spectool[engine]'
if [ -n "$python" ]; then
	install "$python" --no-deps --target "$work/plugin" vllm-spectool
	export PYTHONPATH=$work/plugin${PYTHONPATH:+:$PYTHONPATH}
else
	"$base" -m venv "$work/server" >"$log" 2>&1 || refuse "$base makes no virtual environment"
	python=$work/server/bin/python
	install "$python" vllm vllm-spectool
fi

# Interrupted rather than killed, so that it stops the server it has started.
code=0
timeout --signal INT --kill-after 60 $((LIMIT_S - SECONDS)) \
	"$work/client/bin/python" -m langchain_spectool.cli \
	bench engine --python "$python" --model "$model" --out "$out" "${quick[@]}" -- "$@" || code=$?
[ "$code" -ne 124 ] || refuse "not done within $LIMIT_S s: try --quick"
[ "$code" -ge 2 ] || echo "gpu_check.sh: the figures are in $out, after $SECONDS s"
exit "$code"
