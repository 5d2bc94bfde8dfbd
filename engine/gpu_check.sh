#!/usr/bin/env bash
# Runs `spectool bench engine` on a machine with a GPU and without a network.
set -euo pipefail

readonly LIMIT_S=570
readonly STOP_S=25  # a server may take 20 to stop
readonly LEAST_S=150 # for two servers and one repeat
readonly DRAFTS_S=360 # for a third server too

usage() {
	cat <<'END'
Usage: gpu_check.sh --wheels FOLDER --model FOLDER [OPTION ...] [-- VLLM_FLAG ...]

Measures the tool cache of vLLM on this machine's GPU in under ten minutes and writes one JSON file.
Nothing is fetched: all packages come from the wheels. In a checkout, with a network and the Python
version of the GPU machine:

  python3.12 -m pip wheel --wheel-dir FOLDER '.[engine]' ./engine
  python3.12 -m pip wheel --wheel-dir FOLDER vllm==0.32.0

  --wheels FOLDER  those wheels; for one Python version, 3.11 or newer
  --model FOLDER   an instruction model that calls tools and does not reason first, with a chat
                   template that renders tools in hermes style (Qwen2.5-7B-Instruct, say); another
                   style needs its parser: -- --tool-call-parser llama3_json --chat-template FILE
  --python PATH    interpreter of an environment that has vLLM 0.32 already (its wheel is not needed
                   then); vllm-spectool is put into a temporary folder beside it, and the
                   environment stays as it is. Saves the minutes that installing vLLM takes
  --out FILE       where the JSON goes (default: gpu_check.json); what servers write goes to
                   FILE.logs
  --no-drafts      leave out the server that drafts arguments (O2), which is measured last
  --quick          all of it small, to see that it works

Needs nvidia-smi, a C compiler and Python's headers (vLLM's Triton compiles with them), and with
vLLM's wheel 12 GB in TMPDIR. Repeats are as many as there is time for, up to three.

Exit status: 0 all bars are met; 1 one is missed (with blocks of 16 tokens, vLLM's default on a GPU,
o3_prefill_tokens_vs_round_trip is expected to be: docs/engine-benchmark.md); 2 something is
missing, as the last line says.
END
}

refuse() {
	echo "gpu_check.sh: $1" >&2
	exit 2
}

has_wheel() { # has_wheel NAME: whether the folder has one of that distribution
	compgen -G "$wheels/$1-*.whl" >/dev/null
}

fits() { # fits PYTHON: whether it is new enough, and the wheels are for it
	local tag
	tag=$("$1" -c 'import sys; v = sys.version_info; print(f"cp{v[0]}{v[1]}"); sys.exit(v < (3, 11))' \
		2>/dev/null) && compgen -G "$wheels/pydantic_core-*-$tag-*.whl" >/dev/null
}

wheels='' model='' python='' out=gpu_check.json quick=() drafts=(--drafts)
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--quick) quick=(--quick) ;;
	--no-drafts) drafts=() ;;
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
for each in langchain_spectool vllm_spectool httpx pydantic_core; do
	has_wheel "$each" || refuse "$wheels has no wheel of $each"
done
command -v nvidia-smi >/dev/null || refuse "no nvidia-smi: this machine has no NVIDIA GPU"
nvidia-smi >/dev/null 2>&1 || refuse "nvidia-smi fails: the GPU cannot be used"

base=''
for each in ${python:+"$python"} python3.13 python3.12 python3.11 python3; do
	if [ -z "$base" ] && fits "$each"; then base=$each; fi
done
[ -n "$base" ] || refuse "the wheels are for no Python of 3.11 or newer that is here: $(
	basename -a "$wheels"/pydantic_core-*.whl | tr '\n' ' '
)"
if [ -n "$python" ]; then
	"$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("vllm"))' ||
		refuse "$python has no vllm"
else
	has_wheel vllm || refuse "$wheels has no wheel of vllm: add it, or give --python"
fi
command -v "${CC:-gcc}" >/dev/null || command -v clang >/dev/null ||
	refuse "no C compiler: install gcc, or name one in CC"
"${python:-$base}" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' ||
	refuse "${python:-$base} has no Python.h: install its headers (python3-dev)"

touch "$out" 2>/dev/null || refuse "$out cannot be written"
work=$(mktemp -d)
trap 'rm -rf "$work"; [ -s "$out" ] || rm -f "$out"' EXIT
log=$work/install.log

environment() { # environment FOLDER: with a pip, or for that of the interpreter it is made with
	if "$base" -m venv "$1" >"$log" 2>&1; then
		pip=("$1/bin/python" -m pip)
	else
		pip=("$base" -m pip)
		{ "$base" -m venv --clear --without-pip "$1" && "${pip[@]}" --version; } >"$log" 2>&1 ||
			refuse "$base has neither ensurepip nor pip (python3-venv): $(tail -n 1 "$log")"
	fi
	# An interpreter behind a wrapper may come out as the wrapped one's own environment.
	"$1/bin/python" -c 'import os, sys; sys.exit(not os.path.samefile(sys.prefix, sys.argv[1]))' "$1" ||
		refuse "what $base makes is no environment of its own: name another Python with --python"
}

install() { # install PYTHON ARGUMENT ...: what stands last is what is installed
	"${pip[@]}" --python "$1" install -q --disable-pip-version-check --no-input --no-compile \
		--no-index --find-links "$wheels" "${@:2}" >"$log" 2>&1 ||
		refuse "cannot install ${*: -1}: $(grep -m 1 ERROR "$log" || tail -n 1 "$log")"
}

# The client in an environment of its own: LangChain has no place in the server's.
environment "$work/client"
client=$work/client/bin/python
install "$client" 'langchain-spectool[engine]'
if [ -n "$python" ]; then
	install "$client" --no-deps --target "$work/plugin" vllm-spectool
	export PYTHONPATH=$work/plugin${PYTHONPATH:+:$PYTHONPATH}
else
	environment "$work/server"
	python=$work/server/bin/python
	install "$python" vllm-spectool 'vllm==0.32.*'
fi
echo "gpu_check.sh: all is installed after $SECONDS s"

left_s=$((LIMIT_S - SECONDS))
[ "$left_s" -ge "$LEAST_S" ] || refuse "installing took $SECONDS s, too long: give --python"
[ "$left_s" -ge "$DRAFTS_S" ] || drafts=()
# All sampling is greedy, so no kernel for other sampling need be compiled.
export VLLM_USE_FLASHINFER_SAMPLER=${VLLM_USE_FLASHINFER_SAMPLER:-0}

# Terminated rather than killed, so that it stops the server it has started.
code=0
timeout --kill-after "$STOP_S" "$left_s" "$client" -m langchain_spectool.cli \
	bench engine --python "$python" --model "$model" --out "$out" --logs "$out.logs" \
	--within $((left_s - STOP_S)) "${quick[@]}" "${drafts[@]}" -- "$@" || code=$?
[ "$code" -ne 124 ] || refuse "not done within $LIMIT_S s: try --quick, --no-drafts or --python"
[ "$code" -ge 2 ] || echo "gpu_check.sh: the figures are in $out, after $SECONDS s"
exit "$code"
