# Everything a newcomer needs: `make serve`, `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SERVING := $(VENV)/.serving
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: help install serve demo compare test test-slow fast-tests slow-tests check lint types all-types kernels format \
  bench figures docs dist clean

# Tests start hundreds of Python processes. Without cached bytecode each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# More processes than cores, because many tests wait for a service.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## Set up .venv with every extra

$(STAMP): pyproject.toml constraints.txt
	@echo 'Installing rankloop with all extras and development tools into $(VENV) (about 2 minutes)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[lab,service,postgres,neural,cluster,dev]'
	@touch $@ $(SERVING)

$(SERVING): pyproject.toml constraints.txt
	@echo 'Installing rankloop and what the service needs into $(VENV) (less than a minute)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[service]'
	@touch $@

serve: $(SERVING)  ## Start the service on 127.0.0.1:8080 with an example ranker; installs only what serving needs
	$(BIN)/rankloop serve --example

demo: $(SERVING)  ## Watch rankings learn: a shop with simulated shoppers and the status page in your browser
	$(BIN)/python -m examples.shop

compare: install  ## Compare learners in the lab on a generated data set, and draw the curves
	@mkdir -p results
	$(BIN)/rankloop compare pairrank pdgd greedy epsilon-greedy random --data 'synthetic:mslr?queries=300' \
	  --user navigational --rounds 2000 --seeds 2 --processes 2 --figure results/compare.png

test: install  ## Lint, types of src, and the fast tests: before every commit
	@$(MAKE) --no-print-directory -j2 lint kernels
	@$(MAKE) --no-print-directory -j2 types fast-tests

test-slow: install  ## All other tests (browser, Dask, kill runs, docs, experiments) and types of tests and benchmarks
	@$(MAKE) --no-print-directory kernels
	@$(MAKE) --no-print-directory -j2 all-types slow-tests

fast-tests:
	$(PYTEST)

slow-tests:
	$(PYTEST) -m slow

kernels: install
	@echo 'Compiling kernels (about a minute the first time, then cached)'
	@$(BIN)/python -m tests.machines > /dev/null

check: lint all-types  ## Lint, import layers, types of everything

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy src

all-types: install
	$(BIN)/mypy

format: install  ## Format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## Measure speed, one table
	$(BIN)/python -m benchmarks speed

figures: install  ## Draw the README's figure and take the screenshots of the page
	$(BIN)/python -m benchmarks readme_figure
	$(BIN)/python docs/screenshots.py

docs: install  ## Build the documentation as a site, with search, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'site/ is built. To read and search it: $(BIN)/python -m http.server -d site 8001, then http://127.0.0.1:8001'

dist: install  ## Build the wheels of rankloop and of the client into dist/
	$(BIN)/python -W ignore -m hatchling build -d dist
	cd client && ../$(BIN)/python -W ignore -m hatchling build -t wheel -d ../dist

clean:  ## Remove the virtual environment and computed files
	rm -rf $(VENV) results site .pytest_cache .mypy_cache .ruff_cache .hypothesis
