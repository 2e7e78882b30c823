# kbroker: `make run` shows it at work, `make test` proves it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export KBROKER_TEST := 1

.PHONY: help venv build

help:
	@sed -n 's/^## //p' Makefile

## make venv       the virtual environment with everything the broker imports
venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q "setuptools>=77" "cython>=3.3,<3.4"
	$(BIN)/pip install -q --no-build-isolation -e ".[example,test,lint]"
	touch $@

## make build      compile the extensions in place (KBROKER_DEBUG=1 for the debug variant)
build: venv
	$(BIN)/python setup.py -q build_ext --inplace

.PHONY: test
## make test       everything that takes minutes
test: build
	$(BIN)/pytest -q
