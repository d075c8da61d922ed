# Every target does all of its set-up: on a fresh machine `make demo` is the only command needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
JOBS ?= 2
FAST := not ray and not browser and not postgres and not stress and not train

# Else each of the hundreds of processes of the tests compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

# By uv, a third of the time of pip; by pip where uv finds no packages, as behind a mirror that only pip
# is told of.
PIP = $(1)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check
define install
$(PIP) uv -c constraints.txt
$(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2) || $(PIP) $(2)
endef

.DEFAULT_GOAL := help
.PHONY: help install kserve demo test test-fast soak check docs format clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# pip is what a venv has last: without the system's ensurepip it has Python alone.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "TACL needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (1 to 7 minutes, the first time) ..."
	@$(call install,.venv,-e '.[dev]' -c constraints.txt)
	@touch $@

install: $(READY) ## create .venv and install everything into it

# It takes older psutil, protobuf and pandas than TACL; the test that asks it is skipped without.
kserve: ## KServe's client in .venv-kserve, for its test
	@test -x .venv-kserve/bin/pip || $(PYTHON) -m venv .venv-kserve
	@$(call install,.venv-kserve,kserve==0.21.0)

demo: $(READY) ## the whole story on embedded data: no network, no GPU, 4 to 7 minutes
	@$(BIN)/tacl demo

# Whole files go to one process each, for their fixtures; what takes longest first (tests/conftest.py).
TOGETHER := -n $(JOBS) --dist loadfile --no-loadscope-reorder

test: $(READY) ## run the tests but for nightly ones, 8 to 30 minutes on two cores, by their kind
	@TACL_TEST_BUDGET=ci $(BIN)/python -m pytest $(TOGETHER)

test-fast: $(READY) ## run those that need no cluster, server or training: 3 to 7 minutes
	@$(BIN)/python -m pytest -q $(TOGETHER) -m "$(FAST)"

soak: $(READY) ## hours: 200 random kills, 20 more on Ray, a death at every moment, a hostile half hour
	@TACL_TEST_BUDGET=nightly $(BIN)/python -m pytest -q --timeout 7200 -m "stress and not ray"
	@$(BIN)/python -m tests.stress.soak --ray --kills 20
	@$(BIN)/python -m tests.stress.hostile --minutes 30 --kills 50 --results results

check: $(READY) ## format, lint, types, and which room imports which
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright --threads $(JOBS)
	@$(BIN)/lint-imports

docs: $(READY) ## build the documents as a site in site/, links checked, without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "site/index.html"

format: $(READY) ## rewrite the code in the common format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove .venv and caches
	rm -rf .venv .venv-kserve build site *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
