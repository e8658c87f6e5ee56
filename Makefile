# Each job does its own set-up: a .venv, the install, then the work. Only python3 is needed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
READY_ALL := $(VENV)/.ready-all
READY_DEMO := $(VENV)/.ready-demo
READY_DOCS := $(VENV)/.ready-docs
C      ?= build/c
# Two processes for each core, up to four. The tests of a file stay together: they share what is costly to set up. Long
# files come first, so that no process is left with one (tests/workers.py). The slowest tests are listed, so that
# somebody notices a new one.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 10

# Where there is an NVIDIA driver, cuda-core comes along, so that the demo measures instead of simulating: the
# one for CUDA 13 from driver 580 on, else the one for CUDA 12.
NVIDIA ?= /proc/driver/nvidia/version
DRIVER := $(shell sed -n 's/^NVRM version:.* \([0-9][0-9]*\)\.[0-9.]* .*/\1/p' $(NVIDIA) 2>/dev/null)
CUDA   := $(if $(wildcard $(NVIDIA)),$(shell test 0$(DRIVER) -ge 580 && echo ,cu13 || echo ,cu12))
# The same with CuPy, for the arrays of the demo.
CUPY   := $(subst cu13,cupy,$(subst cu12,cupy12,$(CUDA)))
# Both distributions of the checkout, headrace with some extras.
INSTALL := $(BIN)/python -m pip install --quiet --editable packages/holoscan --editable

# Tests start hundreds of processes: without bytecode, each compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test test-thorough test-all test-compiled test-loaded test-jittered sanitize lint gpu-test gpu-sanitize soak bench bench-step
.PHONY: compile compile-sources wheel compiled-wheel wheels wheel-test pure clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(READY): pyproject.toml packages/holoscan/pyproject.toml | $(BIN)/python
	$(INSTALL) '.[dev$(CUDA)]'
	@touch $@

# Where the package index has only the build of PyTorch that brings CUDA along, PIP_EXTRA_INDEX_URL can name one
# that has the build for the CPU.
$(READY_ALL): $(READY)
	$(INSTALL) '.[dev$(CUDA),all-cpu]'
	@touch $@

$(READY_DEMO): pyproject.toml packages/holoscan/pyproject.toml | $(BIN)/python
	$(INSTALL) '.[demo$(CUPY)]'
	@touch $@

$(READY_DOCS): pyproject.toml packages/holoscan/pyproject.toml | $(BIN)/python
	$(INSTALL) '.[docs$(CUDA)]'
	@touch $@

demo: $(READY_DEMO)  ## an endoscope with a control loop beside it, on shared and on separate SMs; DEMO=--view
	$(BIN)/python examples/endoscope.py $(DEMO)

test: $(READY) pure  ## the tests that need no GPU, with the array libraries that are installed
	$(PYTEST)

test-thorough: $(READY) pure  ## the same, with more examples of each property and more schedules of the scheduler
	HEADRACE_TESTS=thorough $(PYTEST)

test-all: $(READY_ALL) pure  ## the same, with every array library that runs without a GPU
	$(PYTEST)

sanitize: $(READY_ALL)  ## tensors under the checks of CPython's allocator, AddressSanitizer and Valgrind
	$(BIN)/python -m tests.tensor.sanitize

test-compiled: $(C)/extensions.json  ## the same against compiled modules, in a copy of the package; TESTS=... for some
	rm -rf build/compiled
	mkdir -p build/compiled
	cp -r src/headrace build/compiled
	$(BIN)/python tools/compile_c.py $(C) build/compiled
	PYTHONPATH=$(CURDIR)/build/compiled $(BIN)/python -m headrace info | grep 'Hot path   compiled'
	PYTHONPATH=$(CURDIR)/build/compiled $(PYTEST) $(TESTS)

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY_DOCS)  ## the site, in build/site; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo build/site/index.html

gpu-test:  ## tests/gpu on a real GPU, from the source tree, with PYTHON; the counts go to benchmarks/results/gpu_tests.md
	PYTHONPATH=$(CURDIR)/src:$(CURDIR)/packages/holoscan/src$${PYTHONPATH:+:$$PYTHONPATH} HEADRACE_DEVICE=cuda $(PYTHON) -m pytest tests/gpu -p no:cacheprovider \
		-p tests.gpu.counts

# A suite that passes here depends on nothing but the code: other people's machines are busy with other work.
test-loaded: $(READY) pure  ## the tests beside eight busy processes, three times in a row
	$(BIN)/python -m tests.loaded --busy 8 --times 3 -- $(PYTEST:auto=8) --maxprocesses 8

test-jittered: $(READY) pure  ## the tests with threads and processes that are late on purpose; JITTER=7 or 7:main, TESTS=... for some
	HEADRACE_JITTER=$(or $(JITTER),1) $(PYTEST) -p tests.jitter $(TESTS)

gpu-sanitize:  ## tensors and segments on a real GPU under compute-sanitizer; PLANT=leak or use-after-free gives it something to find
	PYTHONPATH=src compute-sanitizer --tool memcheck --leak-check full --report-api-errors no --error-exitcode 1 \
		$(PYTHON) -m tests.gpu.sanitize $(if $(PLANT),--plant $(PLANT))
	PYTHONPATH=src compute-sanitizer --tool memcheck --report-api-errors no --show-backtrace no --error-exitcode 1 \
		$(PYTHON) -m tests.gpu.sanitize_segments $(if $(PLANT),--plant)

soak: $(READY)  ## minutes of random programs; not part of the checks
	$(BIN)/python -m tests.random_programs --minutes $(or $(MINUTES),5)

bench: $(READY)  ## headrace beside its peers; BENCH='chain-5 --holoscan-python python' passes options and names
	$(BIN)/headrace bench $(BENCH)

bench-step: $(READY)  ## the bytecodes of a step, beside the saved ones; STEP=--save saves them
	$(BIN)/python -m benchmarks.step $(STEP)

compile: $(C)/extensions.json  ## the hot path as extension modules beside their files in src; again after each change
	$(BIN)/python tools/compile_c.py $(C) src

compile-sources: $(C)/extensions.json  ## in build/c the C of that, to be compiled where there is no mypy

$(C)/extensions.json: $(READY) $(shell find src/headrace -name '*.py') tools/generate_c.py tools/compile_c.py
	$(BIN)/python tools/generate_c.py $(C)

wheel: $(READY) pure  ## dist: the pure wheels of both distributions, for every Python and every machine
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . ./packages/holoscan

# From an empty environment: mypy would read all of PyTorch and JAX where the interpreter has them.
compiled-wheel:  ## dist: a wheel with the extension modules, for this Python and this kind of machine
	$(PYTHON) -m venv build/venv-wheel
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 build/venv-wheel/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(MAKE) pure

wheels:  ## dist: both, as they are released
	rm -rf dist
	$(MAKE) wheel compiled-wheel

# In environments of their own, so that nothing of the checkout is there; with TESTS=... some of the suite. Each is
# removed when its test has passed: the libraries of a GPU alone are gigabytes.
wheel-test: $(READY)  ## each wheel in dist, in a clean environment: the suite of the public interface, and each extra
	HEADRACE_WHEELS=$(CURDIR)/dist $(BIN)/python -m pytest tests/test_wheels.py -o tmp_path_retention_policy=failed

pure:  ## no extension modules in src: Python would import them in place of the files beside them
	@find src -name '*.so' -delete

clean: pure
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
