# Every target sets up what it needs by itself (ci/setup, ci/hybrid) and does nothing twice.
# PYTHON=/path/to/python3.11 names the Python to use; the fit one is found without it.

export OMP_NUM_THREADS ?= 1
export VLLM_CPU_OMP_THREADS_BIND ?= nobind
export HF_HUB_OFFLINE ?= 1
export PYTHON
unexport PYTHONPATH PYTHONHOME
# Without bytecode every import of vLLM compiles thousands of modules.
unexport PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX

# Any Python 3.7 or later starts the set-up, which finds the one that it needs. A command that
# exists need not run: version managers leave shims that only print an error.
STARTS = import sys; sys.exit(sys.version_info < (3, 7))
STARTER = $(shell for p in $(PYTHON) python3 python3.11 python; \
	do if $$p -c "$(STARTS)" 2>/dev/null; then echo $$p; break; fi; done)
NO_PYTHON = [AV-SETUP-PYTHON] no Python runs here; Python 3.11; \
	install it (Debian: apt-get install python3.11 python3.11-venv)

BIN := .venv/bin
# vLLM 0.33.0 on the CPU: its Python over the operators of the CPU build in .venv (ci/hybrid).
BIN033 := .venv-033/bin
# vLLM keeps what it learnt of a model's class under a name that both versions share.
PYTEST033 := VLLM_CACHE_ROOT="$(CURDIR)/.venv-033/cache" $(BIN033)/pytest
# Two workers for two cores. Tests of one file share engines and stay together. The engine tests
# come last: what vLLM leaves in a process is not to meet another test's child processes there. The
# benchmarks are `make bench`.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
TESTS := $(wildcard $(addprefix tests/,unit contract kernels engine))

.DEFAULT_GOAL := help
.PHONY: help setup setup-033 demo drafters traces test test-033 test-full bench check wheel lock clean

help:
	@echo "make demo       set up, then run a real model in three arms and compare them (minutes);"
	@echo "                DRAFTER=name takes another drafter, TEMPERATURE=0 another temperature"
	@echo "make drafters   train the package's drafters anew, or DRAFTER=name (hours)"
	@echo "make traces     record what became of the drafters' drafts, or DRAFTER=name (40 minutes)"
	@echo "make test       set up, check, then the tests, on two cores"
	@echo "make test-033   the engine tests on vLLM 0.33.0, set up as far as a CPU can run it"
	@echo "make test-full  what make test leaves out for its length, after make traces"
	@echo "make bench      the benchmarks"
	@echo "make check      ruff, mypy, the image's Dockerfile, and the README's matrix"
	@echo "make wheel      the package's wheel, which ci/Dockerfile takes, in build/image"
	@echo "make setup      only set up .venv"
	@echo "make setup-033  only set up .venv and, from it, .venv-033"
	@echo "make lock       resolve the dependencies anew and write requirements.lock"
	@echo "make clean      remove everything that make has made here, environments included"

setup:
	@starter="$(STARTER)"; \
	if [ -z "$$starter" ]; then echo "error: $(NO_PYTHON)" >&2; exit 2; fi; \
	exec $$starter -m ci.setup

setup-033: setup
	@$(BIN)/python -m ci.hybrid

# The shell reads both from its environment, so that each stays one argument whatever it holds.
export DRAFTER TEMPERATURE
demo: setup
	@$(BIN)/vllm-av demo $(if $(DRAFTER),--drafter "$$DRAFTER") \
		$(if $(TEMPERATURE),--temperature "$$TEMPERATURE")

# Each is trained after what it needs; what is whole in build/drafters is kept.
drafters: setup
	@stage=$$($(BIN)/python -m ci.stage $(if $(DRAFTER),"$$DRAFTER")) && \
	exec $(BIN)/python -m vllm_av.training $$stage

# What is whole in build/traces is kept.
traces: setup
	@$(BIN)/python -m ci.traces $(if $(DRAFTER),"$$DRAFTER")

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/hadolint --failure-threshold style --trusted-registry docker.io ci/Dockerfile
	$(BIN)/python -m ci.image.labels --check
	$(BIN)/python -m ci.matrix --check

test: check setup-033
	$(BIN)/pytest $(PARALLEL) $(TESTS)
	$(PYTEST033) $(PARALLEL) -m smoke tests/engine

test-033: setup-033
	$(PYTEST033) $(PARALLEL) tests/engine

# The bars are measured on the traces; those that are whole are kept.
test-full: traces
	$(BIN)/pytest -m full tests

bench: setup
	$(BIN)/pytest tests/benchmarks --benchmark-columns=median,iqr,rounds --benchmark-sort=name

# Alone in its folder: an image takes what is there.
wheel: setup
	rm -rf build/image
	$(BIN)/python -m hatchling build -t wheel -d build/image

lock: setup
	$(BIN)/python -m ci.lock

clean:
	rm -rf .venv .venv-033 build dist .pytest_cache .mypy_cache .ruff_cache .benchmarks .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
