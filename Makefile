# What one does with a checkout. `make` alone lists it.

PYTHON ?= python3
# Of a soak.
MINUTES ?= 60
# What is left empty here is up to the server's other settings.
MODEL ?=
PORT ?=
CACHE_DIR ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Installed from these two files; a stamp that is newer than both saves every call of pip.
PINNED := pyproject.toml constraints.txt
RUNTIME := $(VENV)/.runtime-installed
TOOLS := $(VENV)/.tools-installed
MUTATOR := build/mutants/.installed

# Tests that run domain/ and application/ in their own process, without a model: tracing costs them
# half as much again. The others are not traced.
TRACED := tests/unit tests/contract
SERVED := tests/http tests/crash
# Run beside those, on another core. What this writes is shown when it has ended.
BESIDE := tests/property tests/simulation tests/engine
BESIDE_OUTPUT := build/beside.txt
covered := coverage report --format=total --include=
uncovered := $(BIN)/coverage report lists the lines that no test reaches: test them or delete them

.DEFAULT_GOAL := help
.PHONY: help serve test format bench faults soak mutants clean first-lane second-lane

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16
	@echo
	@echo '  MODEL=, PORT=, CACHE_DIR= and ARGS= are handed to the server, as in'
	@echo '  make serve MODEL=toy PORT=8001 ARGS="--slots 2". PYTHON= names the interpreter.'

serve: $(RUNTIME) ## install what it needs, once, and serve MODEL on PORT
	@$(BIN)/anchorline serve $(if $(MODEL),'$(MODEL)') $(if $(PORT),--port $(PORT)) \
		$(if $(CACHE_DIR),--cache-dir '$(CACHE_DIR)') $(ARGS)

test: $(TOOLS) ## check format, lint, types and layers, and run the tests
	@$(call step,format,ruff format --check,make format)
	@$(call step,lint,ruff check,mend what is listed; make format mends some of it)
	@$(call step,layers,lint-imports,import only what stands below; see docs/index.md)
	@$(call step,types,basedpyright,mend what is listed)
ifeq ($(ARGS),)
	@$(MAKE) --no-print-directory -j2 first-lane second-lane
	@$(call step,percent of domain/ covered,$(covered)'domain/*',$(uncovered))
	@$(call step,percent of application/ covered,$(covered)'application/*',$(uncovered))
else
	@$(call step,tests,pytest $(ARGS),mend it; ARGS="-x tests/unit" runs fewer)
endif
	@echo '== all is well'

first-lane:
	@$(call step,tests,coverage run -m pytest $(TRACED),mend it; ARGS="-x tests/unit" runs fewer)
	@$(call step,served tests,pytest $(SERVED),mend it; ARGS="-x tests/http" runs fewer)

second-lane:
	@mkdir -p $(dir $(BESIDE_OUTPUT))
	@echo 'beside these, on another core: more tests, shown when they have ended; see $(BESIDE_OUTPUT)'
	@( $(call step,tests beside,pytest $(BESIDE),mend it; ARGS="-x tests/engine" runs fewer) ) \
		>$(BESIDE_OUTPUT) 2>&1; status=$$?; cat $(BESIDE_OUTPUT); exit $$status

format: $(TOOLS) ## format the code, and mend what the linter can
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

bench: $(TOOLS) ## measure the server; ARGS= are those of tests/benchmarks/run.py
	@PYTHONPATH=.path $(BIN)/python tests/benchmarks/run.py $(ARGS)

faults: $(TOOLS) ## plant faults in the code and see the simulated world find each
	@PYTHONPATH=.path:tests $(BIN)/python tests/simulation/planted_faults.py $(ARGS)

soak: $(TOOLS) ## run agents against the server for MINUTES, with kills; ARGS="--seed 1"
	@PYTHONPATH=.path:tests $(BIN)/python -m soak --minutes $(MINUTES) $(ARGS)

mutants: $(MUTATOR) ## change domain/ in small ways and see the tests fail; ARGS="--share 0.1"
	@build/mutants/venv/bin/python tests/mutants/generate.py . build/mutants/mutants.json
	@PYTHONPATH=.path:tests $(BIN)/python tests/mutants/run.py build/mutants/mutants.json \
		build/mutants/results.jsonl $(ARGS)

clean: ## remove the environment and what tools left
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# $(call step,NAME,COMMAND,WHAT TO DO): run one of the environment's tools; say what to do if it
# fails. `.path` puts this checkout first, wherever the environment's own copy points.
step = echo '== $(1): $(firstword $(2))'; \
	PYTHONPATH=.path $(BIN)/$(2) || \
	{ status=$$?; echo '== $(1) failed. Next: $(3)' >&2; exit $$status; }

$(RUNTIME): $(PINNED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "anchorline needs Python 3.11 or newer, and '$(PYTHON)' is no such one;" \
			"name it as in: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo '== installing what the server needs into $(VENV); this takes some minutes, once'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	@$(BIN)/python -m pip install --constraint constraints.txt \
		--build-constraint constraints.txt --editable .
	@touch $@

# cosmic-ray knows how to mutate; its libraries stay out of the project's environment.
$(MUTATOR): $(TOOLS)
	@echo '== installing what mutates into build/mutants'
	@$(BIN)/python -m venv build/mutants/venv
	@build/mutants/venv/bin/python -m pip install --quiet cosmic-ray==8.7.0
	@touch $@

$(TOOLS): $(RUNTIME)
	@echo '== installing what the tests need'
	@$(BIN)/python -m pip install --constraint constraints.txt --group dev
	@touch $@
