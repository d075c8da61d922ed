# Every target does all of its set-up: on a fresh machine `make demo` is the only command needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help install demo test soak check format clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "TACL needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (some minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

install: $(READY) ## create .venv and install everything into it

demo: $(READY) ## the whole story on embedded data: no network, no GPU, at most 8 minutes
	@$(BIN)/tacl demo

test: $(READY) ## run the tests
	@$(BIN)/python -m pytest

soak: $(READY) ## 200 random kills, 20 more on Ray, and a death at every moment of a story
	@TACL_TEST_MOMENTS=1000 $(BIN)/python -m pytest -q tests/stress/test_crashes.py
	@$(BIN)/python -m tests.stress.soak --kills 200
	@$(BIN)/python -m tests.stress.soak --ray --kills 20

check: $(READY) ## format, lint, types, and which room imports which
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: $(READY) ## rewrite the code in the common format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove .venv and caches
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
