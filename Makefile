# Each target does everything on a fresh machine: it makes .venv, installs, runs.
# A second run reinstalls nothing: the stamp is newer than what it was made from.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo quick test soak lint types check mutants bench superset papers clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "privsql needs Python 3.11 or newer; set one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
	  $(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	@touch $@

install: $(STAMP)  ## make .venv and install privsql in it

demo: $(STAMP)  ## the whole workflow on a generated clinic, in a minute
	@$(BIN)/privsql demo

lint: $(STAMP)  ## ruff, formatting included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

# One process more than there are cores: many tests wait for a server, a terminal or a child.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

# Byte code is kept even where the environment says otherwise: the tests start hundreds of programs,
# and each of them would compile three hundred modules.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

check: $(STAMP)  ## doctests and tests
	$(PYTEST)

# Three speeds; tests/sizes.py says what each of them runs.
quick: lint types  ## while editing, without the slow tests
	PRIVSQL_QUICK=1 $(PYTEST)

test: lint  ## everything that must pass, simulations at a small size
	@$(MAKE) --no-print-directory -j 2 types check

soak: lint types  ## the same with long simulations, fuzzers and every client: an hour
	PRIVSQL_SOAK=1 $(PYTEST)

mutants: $(STAMP)  ## mutation tests: 310 changes of the code, one at a time, and which go undetected. An hour
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.mutants --count 310 --seed 14

# One BLAS thread: with more, a busy second core turns milliseconds into seconds.
bench: $(STAMP)  ## ratios of speed, each measured in one run
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench.bench_wire

# Opt in: installs Superset in an environment of its own, which takes minutes.
superset: $(STAMP)  ## a real Superset connects, lists, makes a dataset and draws a chart
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fronts.pgwire.superset

papers: $(STAMP)  ## reproduce the four papers' tables and figures, in some twenty minutes
	for paper in olap fine recon splu; do \
	  OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python examples/papers/$$paper.py || exit 1; done
	$(BIN)/python examples/papers/summary.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis privsql-demo
