# make run        speak a recorded order to a real server, hear the answer (first time: some minutes)
# make help       the rest

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The first of these that starts; a pyenv shim may exist without its Python.
ifndef PYTHON
PYTHON := $(shell for p in python3.11 python3; do "$$p" -c pass 2>/dev/null && { echo "$$p"; break; }; done)
endif
VENV := .venv
PY := $(VENV)/bin/python
RUN_INSTALLED := $(VENV)/.run-installed
DEV_INSTALLED := $(VENV)/.dev-installed
AUDIO ?=
ARGS ?=

.PHONY: help doctor run serve build check test test-full test-gpu eval train bench-turn bench-seed bench-apart bench-live bench-operate bench-memory bench-engine bench-stages bench-gpu chaos soak clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

doctor: ## is this machine fit? says what is missing, and the command that brings it
	@test -n "$(PYTHON)" || { echo "missing  Python 3.11: put python3.11 on the PATH" >&2; exit 1; }
	@$(PYTHON) deploy/doctor.py .

run: $(RUN_INSTALLED) ## speak AUDIO=my.wav (default: a sample order), write out/reply.wav and out/run.json
	@$(PY) -m build
	@exec $(PY) -m client run $(if $(AUDIO),"$(AUDIO)") $(ARGS)

serve: $(RUN_INSTALLED) ## run the server in the foreground; ARGS="--ports 8000 8001 8002"
	@$(PY) -m build
	@exec $(PY) -m deploy serve $(ARGS)

build: $(RUN_INSTALLED) ## weights to ONNX, only what changed
	@$(PY) -m build $(ARGS)

check: $(DEV_INSTALLED) ## lint, types, and every config.pbtxt against its graph
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy
	@$(PY) -m build
	@$(PY) -m pytest tests/repository

test: $(DEV_INSTALLED) ## everything that is proved in minutes, with a real server
	@$(PY) -m build
	@$(PY) -m pytest tests -m 'not full' $(ARGS)

test-full: $(DEV_INSTALLED) ## the slow proofs
	@$(PY) -m build
	@$(PY) -m pytest tests -m full $(ARGS)

test-gpu: $(DEV_INSTALLED) ## every portable graph on a GPU beside the CPU: out/bench/gpu.json; says so where there is none
	@if $(PY) -m loadtest.gpu present; then $(PY) -m build export --portable; fi
	@$(PY) -m loadtest.gpu test $(ARGS)

eval: $(DEV_INSTALLED) ## how well our weights speak and take orders: out/eval.json, and pages to read and listen to
	@$(PY) -m build
	@$(PY) -m build.evaluate $(ARGS)

train: $(DEV_INSTALLED) ## our own small weights, from nothing (two hours and a quarter on 2 cores; resumes)
	@$(PY) -m build train $(ARGS)

bench-turn: $(DEV_INSTALLED) ## what streaming buys: out/bench/turn.json
	@$(PY) -m build
	@$(PY) -m loadtest.bench_turn $(ARGS)

bench-seed: $(DEV_INSTALLED) ## the seed's experiment on an emulated device: out/bench/seed.json (QUICK=1: the claim alone)
	@$(PY) -m loadtest.seed $(if $(QUICK),--quick) $(if $(PIECES),--pieces $(PIECES)) $(ARGS)

bench-engine: $(DEV_INSTALLED) ## the AR engine, its peers and the server: out/bench/engine.json (QUICK=1: one round)
	@$(PY) -m build
	@$(PY) -c 'import cyllama' 2>/dev/null || $(PYTHON) deploy/one_line.py "installing peers" out/logs/peers.log \
		$(PY) -m pip install --disable-pip-version-check -e '.[bench-peers]' || echo "going on without them" >&2
	@$(PY) -m loadtest.engine $(if $(QUICK),--quick) $(ARGS)

bench-stages: $(DEV_INSTALLED) ## encoder window, listening, diffusion lock, speaking: out/bench/stages.json (QUICK=1: one round)
	@$(PY) -m build
	@$(PY) -m loadtest.stages $(if $(QUICK),--quick) $(ARGS)

bench-gpu: $(DEV_INSTALLED) ## steps beside their floor, first audio, streams, on a GPU: out/bench/gpu.json; says so where there is none
	@if $(PY) -m loadtest.gpu present; then $(PY) -m build export --portable; fi
	@$(PY) -m loadtest.gpu bench $(ARGS)

bench-apart: $(DEV_INSTALLED) ## one server against three, scaled, broken, mended: out/bench/apart.json
	@$(PY) -m loadtest.apart $(ARGS)

bench-live: $(DEV_INSTALLED) ## live calls: paced, interrupted, when a turn is over: out/bench/live.json (QUICK=1: one round)
	@$(PY) -m build
	@$(PY) -m loadtest.live $(if $(QUICK),--quick) $(ARGS)

bench-operate: $(DEV_INSTALLED) ## upgrades, scaling, traces and alerts under load: out/bench/operate.json (QUICK=1: one round)
	@$(PY) -m loadtest.operate $(if $(QUICK),--quick) $(ARGS)

bench-memory: $(DEV_INSTALLED) ## one emulated memory planned by peak, by average and by budgets: out/memory.json
	@$(PY) -m loadtest.memory $(ARGS)

chaos: $(DEV_INSTALLED) ## everything goes wrong on purpose, a quarter of an hour: out/chaos.json (SEED=7: as that time)
	@$(PY) -m build
	@$(PY) -m loadtest.chaos $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(DEV_INSTALLED) ## the same load for SOAK_MIN minutes (15): nothing grows or slows down; out/soak.json
	@SOAK_MIN=$(or $(SOAK_MIN),15) $(PY) -m loadtest.chaos --soak $(ARGS)

clean: ## remove everything made here but .venv and the download cache
	@test ! -x $(PY) || $(PY) -m deploy sweep >/dev/null || true
	@rm -rf out .mypy_cache .ruff_cache .pytest_cache
	@find model_repository ensemble -path '*/1/*' ! -name .gitkeep -delete
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN_INSTALLED): pyproject.toml | doctor
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PYTHON) deploy/one_line.py "installing packages" out/logs/install.log \
		$(PY) -m pip install --disable-pip-version-check -e '.[embedded,build]'
	@touch $@

$(DEV_INSTALLED): pyproject.toml | doctor
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PYTHON) deploy/one_line.py "installing packages" out/logs/install.log \
		$(PY) -m pip install --disable-pip-version-check -e '.[embedded,build,dev,loadtest]'
	@touch $(RUN_INSTALLED) $@
