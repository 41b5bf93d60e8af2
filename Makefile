# Everything is made from Python (>= 3.11, with venv), a Rust toolchain and make. `make help` lists
# the targets; PYTHON, VENV, CARGO_TARGET_DIR and JOBS may be given on the command line.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
CARGO_TARGET_DIR ?= $(CURDIR)/target

bin := $(abspath $(VENV))/bin
python_sources := python tests benches examples
# Those that make, release and share most objects of the extension.
sanitized_tests := $(addprefix tests/python/test_,api.py frames.py jit.py linear_programs.py reentrance.py \
	refs.py rules.py storage.py structure.py threads.py tracer.py)

# pyo3's build script asks this interpreter for its layout.
export PYO3_PYTHON := $(bin)/python
export CARGO_TARGET_DIR
# No installer may pick another environment than ours. The many processes of the tests find modules
# compiled.
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-extension test-long check-core check-extension check-types check-python test-newest test-versions test-generated test-brainstate test-browser test-sanitized
.PHONY: miri soak fuzz bench docs wheels clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/.installed-demo ## trace a GPT training step with jax and with jaxide and compare
	$(bin)/python -m jaxide demo

# How many examples each property of the core is tried on.
examples := 64

of_extension := check-extension check-types check-python

# All at once: while one installs, or checks types, which one core does alone, another goes on.
test: ## run all checks, with a covering choice of combinations (15 minutes)
	$(MAKE) --jobs=3 check-core $(of_extension)

test-extension: ## run the checks that depend on the Python and its jax
	$(MAKE) --jobs=3 $(of_extension)

test-long: $(VENV)/.created ## run all checks, with all combinations (half an hour)
	cargo clippy --all-targets --features bench -- --deny warnings
	$(MAKE) --jobs=3 check-core $(of_extension) selection=--long examples=256

check-core: $(VENV)/.created ## format, lints and tests of the Rust core, which needs no Python
	cargo fmt --all --check
	cargo clippy -- --deny warnings
	env -u MAKEFLAGS PROPTEST_CASES=$(examples) cargo test # or rustdoc looks for make's job server, which it is not given

check-extension: $(VENV)/.created ## lints of the extension
	cargo clippy --all-targets --features python -- --deny warnings

check-types: $(VENV)/.installed-test ## format, lints, types of Python
	$(bin)/ruff check $(python_sources)
	$(bin)/ruff format --check $(python_sources)
	$(bin)/mypy
	$(bin)/python -m mypy.stubtest jaxide._core

check-python: $(VENV)/.installed-test ## Python tests
	$(bin)/python -m pytest --numprocesses $(JOBS) --dist worksteal $(selection)

test-newest: ## run the checks of the extension on the newest Python and jax
	scripts/newest

test-versions: ## run the corpus and the workloads on each supported jax (an hour)
	scripts/versions

test-generated: $(VENV)/.installed-test ## compare 20,000 generated programs with stock jax (hours)
	HYPOTHESIS_PROFILE=long $(bin)/python -m pytest --numprocesses $(JOBS) tests/python/test_generated.py tests/python/test_world.py

test-brainstate: $(VENV)/.installed-test ## run brainstate's own tests with stock jax and with jaxide
	$(bin)/python tests/brainstate_suite.py

test-browser: $(VENV)/.installed-browser ## open the page of Program.to_html in a real browser
	$(bin)/python -m pytest tests/browser

test-sanitized: $(VENV)/.installed-test ## run tests of the extension under AddressSanitizer (needs a nightly Rust)
	scripts/sanitized $(bin)/python --numprocesses $(JOBS) --long $(sanitized_tests)

miri: ## run the tests of the core under Miri (needs a nightly Rust with miri)
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 cargo +nightly miri test

soak: $(VENV)/.installed-bench ## trace 100,000 closures: memory must stay flat, caches within bounds
	$(bin)/python benches/soak.py

fuzz: ## read altered files until something breaks: TARGET=segments for the store (needs a nightly Rust and cargo-fuzz)
	cd fuzz && CARGO_TARGET_DIR=target cargo +nightly fuzz run $(or $(TARGET),read) -- -max_len=4096

bench: $(VENV)/.installed-bench ## make the tables of docs/performance.md
	$(bin)/python benches/tracing.py
	$(bin)/python benches/warm_start.py
	$(bin)/python benches/first_step.py
	$(bin)/python benches/other_sizes.py
	$(bin)/python benches/captured.py
	$(bin)/python benches/constants.py
	$(bin)/python benches/rules.py
	$(bin)/python benches/shares.py
	$(bin)/python benches/structure.py
	$(bin)/python benches/printing.py
	$(bin)/python benches/analyses.py
	$(bin)/python benches/costs.py
	$(bin)/python benches/passes.py
	$(bin)/python benches/memory.py
	$(bin)/python benches/loops.py
	$(bin)/python benches/scale.py
	$(bin)/python benches/auditing.py
	$(bin)/python benches/overhead.py
	$(bin)/python benches/imports.py
	$(bin)/python benches/ir.py
	$(bin)/python benches/recording.py
	$(bin)/python benches/picture.py

docs: $(VENV)/.installed-docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict

wheels: ## build the wheels and the source distribution into dist/, and try them in new environments
	$(PYTHON) scripts/wheels --check

clean: ## remove all that was made
	rm -rf target fuzz/target fuzz/artifacts dist site .venv .newest .versions .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f python/jaxide/_core.*.so
	find $(python_sources) -name __pycache__ -prune -exec rm -rf {} +

# Stamps: an environment is made once, and the extension built when a source of it changes. It has one
# extension at a time: what users have, or for tests one that checks its arithmetic and is built sooner.

$(VENV)/.created:
	@command -v cargo >/dev/null || { echo "jaxide is built with Rust: install cargo first" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

profile := release
$(VENV)/.installed-test: profile := checked

$(VENV)/.installed-%: $(VENV)/.created Cargo.toml Cargo.lock pyproject.toml $(shell find src -name '*.rs')
	rm -f $(VENV)/.installed-*
	MATURIN_PEP517_ARGS='--profile $(profile)' $(bin)/python -m pip install --quiet --editable '.[$*]'
	touch $@
