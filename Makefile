# Everything a newcomer needs: `make serve`, `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SERVING := $(VENV)/.serving
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help install serve demo compare test suite soak check lint types kernels format bench figures docs dist clean

# One more than there are cores: some tests wait for a service, others compute meanwhile. (Two more are no quicker.)
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

help:  ## Say what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## Set up .venv with every extra

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[lab,service,postgres,neural,cluster,dev]'
	@touch $@ $(SERVING)

$(SERVING): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[service]'
	@touch $@

serve: $(SERVING)  ## Start the service on 127.0.0.1:8080 with an example ranker; installs only what serving needs
	$(BIN)/rankloop serve --example

demo: $(SERVING)  ## Watch rankings learn: a shop with simulated shoppers and the status page in your browser
	$(BIN)/rankloop demo

compare: install  ## Compare learners in the lab on a generated data set, and draw the curves
	@mkdir -p results
	$(BIN)/rankloop compare pairrank pdgd greedy epsilon-greedy random --data 'synthetic:mslr?queries=300' \
	  --user navigational --rounds 2000 --seeds 2 --processes 2 --figure results/compare.png

test: install  ## Check the code (ruff, mypy, import layers) and run all tests
	$(MAKE) --no-print-directory -j2 lint kernels
	$(MAKE) --no-print-directory -j2 types suite

suite:  # types are checked beside it, where tests wait; what takes seconds comes before it
	$(PYTEST)

soak: install  ## Before a release: all tests with ten times the examples, long kill runs, every emulated machine
	$(MAKE) --no-print-directory -j2 check kernels
	RANKLOOP_EXAMPLES=soak $(PYTEST) -m '' -o timeout=3600 -o faulthandler_timeout=7200

kernels: install  # machine code, ahead of the tests that would each wait for it; nothing to do the second time
	$(BIN)/python -m tests.machines > /dev/null

check: lint types  ## Lint, types, layers

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy

format: install  ## Let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## Measure speed, one table
	$(BIN)/python -m benchmarks

figures: install  ## Draw the README's figure again, and take the screenshots of the page
	$(BIN)/python -m benchmarks.readme_figure
	$(BIN)/python docs/screenshots.py

docs: install  ## Build the documentation as a site, with search, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'site/ is built. To read and search it: $(BIN)/python -m http.server -d site 8001, then http://127.0.0.1:8001'

dist: install  ## Build what is released into dist/: rankloop, and the client alone
	$(BIN)/python -W ignore -m hatchling build -d dist
	cd client && ../$(BIN)/python -W ignore -m hatchling build -t wheel -d ../dist

clean:  ## Remove the virtual environment and what was computed
	rm -rf $(VENV) results site .pytest_cache .mypy_cache .ruff_cache .hypothesis
