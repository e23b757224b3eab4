# Postroom: make help
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed, and from what: a changed file installs anew, an unchanged one costs nothing.
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
BUILD := $(VENV)/.build
PIP = $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check
# Tests wait for servers more than they compute: two of them for each processor.
WORKERS ?= $(shell expr 2 \* $$(nproc 2>/dev/null || echo 1))

.PHONY: help demo quick test proof check servers bench format docs wheel clean

help: ## Show what can be made
	@echo "Postroom: your data and your message, one commit."
	@echo
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12 | sed 's/^/  make /'

demo: $(CORE) ## Watch orders and their messages travel, through faults, to a proof (ARGS="--plain")
	@$(BIN)/python -m postroom demo $(ARGS)

quick: $(DEV) ## Run the tests that need no server, in less than a minute: on each save
	@$(BIN)/python -m pytest --quick -q -n $$(nproc 2>/dev/null || echo 1) $(ARGS)

test: $(DEV) ## Run the whole suite against real servers; what cannot be had is listed loudly
	@echo "==> The tests: $$($(BIN)/python --version), $(WORKERS) workers; servers are started as they are needed"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=10 $(ARGS)

proof: $(DEV) ## Kill, stop and starve everything for as long as it is given (ARGS="--minutes 10 --seed 7")
	@$(BIN)/python -m tests.proof $(ARGS)

check: $(DEV) ## The gate: format, lint, import contracts, types, tests, documentation
	@echo "==> Format" && $(BIN)/ruff format --check .
	@echo "==> Lint" && $(BIN)/ruff check .
	@echo "==> Import contracts" && $(BIN)/lint-imports --no-cache | tail -n 8
	@echo "==> Types" && $(BIN)/mypy
	@$(MAKE) --no-print-directory test

servers: $(DEV) ## Show which real servers this machine can have
	@$(BIN)/python -m tests.servers

bench: $(DEV) ## Measure the speed ratios, side by side in one run
	@$(BIN)/python -m bench $(ARGS)

docs: $(DEV) ## Build the documentation into build/docs, and say how to read it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file .ci/mkdocs.yml
	@echo "Read it:          build/docs/index.html"
	@echo "With its search:  $(BIN)/python -m http.server --directory build/docs"
	@echo "As you write it:  $(BIN)/mkdocs serve --config-file .ci/mkdocs.yml"

format: $(DEV) ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

wheel: $(BUILD) ## Build the wheel and the source archive into dist/
	@$(BIN)/python -m build --quiet --no-isolation && ls -l dist

clean: ## Remove everything that make has made
	rm -rf $(VENV) .venv-peers dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# ── installing ──

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Postroom needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m pip help 2>/dev/null | grep -q -e --python || \
		{ echo "Installing needs pip 22.3 or later, which $(PYTHON) does not have. On Debian or Ubuntu: apt install python3-pip"; exit 1; }
	@echo "==> A virtual environment in $(VENV)"
	@# Debian's Python comes without ensurepip: the pip outside installs into the environment all the same.
	@$(PYTHON) -m venv --without-pip $(VENV)

$(CORE): $(BIN)/python pyproject.toml
	@echo "==> Installing postroom and its command line"
	@$(PIP) -c .ci/constraints.txt -e '.[cli]'
	@touch $@

$(BUILD): $(BIN)/python pyproject.toml .ci/constraints.txt
	@echo "==> Installing what builds the wheel"
	@$(PIP) -c .ci/constraints.txt build hatchling
	@touch $@

$(DEV): $(BIN)/python pyproject.toml .ci/constraints.txt
	@echo "==> Installing postroom, the drivers it is tested with, and the tools (a minute or two the first time)"
	@$(PIP) -c .ci/constraints.txt -e '.[dev]'
	@touch $@ $(CORE) $(BUILD)
