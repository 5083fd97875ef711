# `make demo` and `make test` set up everything from a bare checkout.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PARALLEL ?= -n logical --maxprocesses 8

.PHONY: setup demo test test-all lint figures clean

setup: $(READY)

$(READY): setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: setup
	$(BIN)/nerd-gym demo --out out/demo

# Style, types and the direction of imports, then the tests on every core.
test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest $(PARALLEL)

test-all: setup
	$(BIN)/python -m pytest $(PARALLEL) -m "slow or not slow"

lint: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# REFERENCE names the folder with recorded states and policies of the published simulator.
figures: setup
	$(BIN)/python benchmarks/recorded_states.py --reference $(REFERENCE)
	$(BIN)/python benchmarks/published_policies.py --policies $(REFERENCE)/policies
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/ratios.py
	$(BIN)/python benchmarks/neural_speed.py
	$(BIN)/python benchmarks/env_overhead.py
	$(BIN)/python benchmarks/first_use.py
	$(BIN)/python benchmarks/adapter_overhead.py
	$(BIN)/python benchmarks/policies.py
	$(BIN)/python benchmarks/long_rollouts.py
	$(BIN)/python benchmarks/collisions.py --again
	$(BIN)/python benchmarks/hybrid.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/augmented_discovery.py
	$(BIN)/python benchmarks/augmented_link_lengths.py
	$(BIN)/python benchmarks/augmented_speed.py
	$(BIN)/python benchmarks/augmented_swimmer.py --joints 1 --media "water, 25 degrees"
	$(BIN)/python benchmarks/mpc_trot.py
	$(BIN)/python benchmarks/strike_planning.py --again
	$(BIN)/python benchmarks/strike_policies.py
	$(BIN)/python docs/make_pictures.py
	$(BIN)/python docs/plot_augmented.py
	$(BIN)/python docs/plot_curves.py
	$(BIN)/python docs/plot_study.py
	$(BIN)/python docs/plot_trot.py
	$(BIN)/python docs/fill_tables.py

clean:
	rm -rf out build *.egg-info $(VENV)
