# For a reader: `make serve`, `make drill` and `make test`. Everything else is for those who work on the code.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
GPU_STAMP := $(VENV)/.gpu-extra
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help setup gpu-extra fetched serve drill live-lab site browser test check format gpu-records hardware-record grid-record ladder-record bench bench-player drift bench-drift

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) gpu-extra  ## make .venv and install the locked packages (again only when they change)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Pagewalk needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}. Name another: make $(MAKECMDGOALS) PYTHON=python3.12")'
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || { echo "No virtual environment could be made. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@rm -f $(GPU_STAMP)
	@touch $@

# What numba-cuda needs beside an NVIDIA driver depends on that driver, so it is asked at each set-up.
gpu-extra: $(STAMP)
	@extra="$$($(BIN)/python -I kernels/gpu_extra.py)"; \
	if [ -n "$$extra" ] && [ "$$extra" != "$$(cat $(GPU_STAMP) 2>/dev/null)" ]; then \
	  $(PIP) install "$$extra" && echo "$$extra" > $(GPU_STAMP); \
	fi

serve: setup  ## fetch the sources, run every step, build the site and serve it on 127.0.0.1
	$(BIN)/pagewalk site serve --port $(PORT)

drill: setup  ## be asked as in an interview, in the terminal; what was answered is kept
	@$(BIN)/pagewalk fetch >/dev/null || echo "Questions that ask for source lines say how they come here." >&2
	@$(BIN)/pagewalk drill

live-lab: setup  ## make the live lab's environment, vLLM's CPU build: about 2.5 GB and 3 minutes, outside .venv
	@$(BIN)/python -m walkthroughs.lab.make

site: setup  ## the same, without serving: the pages are in site/
	$(BIN)/pagewalk fetch
	$(BIN)/pagewalk site build

browser:
	@bash tests/browser/setup_browser.sh

# The releases that the tests read again, of the fourteen that drift knows: about 146 MB on top of what the site needs.
# Without a network what is in the cache will do; a test that misses one says so.
DRIFT_TESTED := vllm@0.6.6.post1 vllm@0.9.2 vllm@0.11.0 vllm@0.22.1 vllm@0.25.0 vllm@0.33.0

fetched: setup
	$(BIN)/pagewalk fetch
	$(BIN)/pagewalk fetch $(DRIFT_TESTED) || echo "Some of $(DRIFT_TESTED) are not here: their tests will say so." >&2

# The network is slow and mypy is slow: neither waits for the other. The order of the test files is tests/conftest.py's.
test: setup browser  ## prove everything: checks and tests, with real sources and a real browser
	$(MAKE) -j 2 fetched check
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

drift: setup  ## read all fourteen releases again and record what became of every anchor, in annotate/drift/
	$(BIN)/pagewalk drift --all-pinned --write

bench-drift: setup  ## measure drift over the releases that are here
	$(BIN)/python -m annotate.bench

check: setup  ## ruff, mypy, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## sort imports, mend what can be mended, lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What `make bench` measures of the ladder: the eight shapes with every rung and peer, the goals, the writer, the host.
BENCH ?= --set facts --set goals --set writer --set host

# A GPU machine may have nothing but numba-cuda, NumPy and torch: use that Python if it can, else set up our own.
define on_gpu_machine
	@if $(PYTHON) -c 'import numba.cuda, numpy, torch' 2>/dev/null; then \
	  $(PYTHON) -m $(1); \
	else \
	  $(MAKE) setup && $(BIN)/python -m $(1); \
	fi
endef

gpu-records:  ## run every step on this machine's GPU, compile every kernel there, and write docs/evidence/
	$(call on_gpu_machine,walkthroughs.records)
	$(call on_gpu_machine,walkthroughs.machine_code)

hardware-record:  ## hold the SIMT machine's verdicts against compute-sanitizer and ncu on this machine's GPU
	$(call on_gpu_machine,walkthroughs.hardware)

grid-record:  ## run the ops over vLLM's test parameters and our matrix on this machine's GPU
	$(call on_gpu_machine,walkthroughs.grid)

ladder-record:  ## the same for every rung of the ladder, and ask compute-sanitizer about each on this machine's GPU
	$(call on_gpu_machine,walkthroughs.grid --tuned)
	$(call on_gpu_machine,walkthroughs.tuned_sanitizers)

# The ladder needs a GPU; the rest of what is measured does not, so without one it is left out and said.
bench:  ## measure the ports, the ladder and its peers on this machine's GPU, and the browser's player
	$(call on_gpu_machine,kernels.bench)
	$(call on_gpu_machine,walkthroughs.bench $(BENCH)) || [ $$? = 2 ]
	@if [ -d site ] && [ -x $(BIN)/python ]; then $(MAKE) --no-print-directory bench-player || true; fi

bench-player:  ## measure the browser's player on the built site: first use, frames a second
	$(BIN)/python -m walkthroughs.player_bench
