# Every target sets up what it needs: a virtual environment in .venv, made anew when pyproject.toml changes.
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run demo test test-faults test-package test-real lint format bench bench-compare check clean

help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: ## make .venv with everything for development
	@VENV='$(VENV)' sh scripts/set_up_venv.sh

run: setup ## the console over your cluster.toml, or this machine; ARGS='--nodes gpu[01-04]'
	@$(BIN)/llmgw-tui $(ARGS)

demo: setup ## the console over a simulated cluster on this machine
	@$(BIN)/llmgw demo $(ARGS)

test: setup ## every test but those of the real vLLM, of the wheel, and the longest of faults
	@sh scripts/ensure_sshd.sh
	$(BIN)/pytest -m 'not real and not endurance' --ignore=tests/packaging $(ARGS)

test-faults: setup ## the whole table of docs/faults.md; as root, else some rows are skipped
	@sh scripts/ensure_sshd.sh
	$(BIN)/pytest -m 'faults' $(ARGS)

test-package: setup ## build the wheel, install it in a clean environment, run its commands
	$(BIN)/pytest tests/packaging $(ARGS)

test-real: setup ## the main job with a real vLLM for CPU over a real sshd (3 minutes to install, 3.5 GB)
	@sh scripts/ensure_sshd.sh
	@PYTHON='$(BIN)/python' sh tests/real/install_vllm.sh
	$(BIN)/pytest -m real tests/real tests/namespaces $(ARGS)

lint: setup ## ruff, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure; writes .benchmarks/latest.json
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-compare: setup ## two reports of make bench: OLD=before.json NEW=after.json; fails when a figure became worse
	$(BIN)/python -m benchmarks.compare $(OLD) $(NEW)

check: lint test test-package ## all that a change must pass

clean: ## remove caches and what was built; not .venv
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
