# SPDX-License-Identifier: GPL-2.0-only
# A thin front: everything is done by ./pageferry and pytest.

PYTHON = $$(python3 scripts/bootstrap.py python)

# `make test` leaves these out: each has a target of its own.
LONG = perf or torture or selftests or builds or kcsan or pressure

.PHONY: help setup demo test campaign torture selftests builds kcsan pressure perf check lint

help:
	@echo "make demo    set up, build the kernel, boot it, move memory, print a table"
	@echo "make test    set up, then every test (builds kernels, boots machines)"
	@echo "make campaign  set up, then move 200,000 folios with DMA channels that fail"
	@echo "make torture   set up, then an hour of memory moving while programs use it"
	@echo "make selftests  set up, then the kernel's own selftests, on its kernel and on ours"
	@echo "make builds  set up, then compile ours with many configurations, random ones too"
	@echo "make kcsan   set up, then look for data races in selftests and torture"
	@echo "make pressure  set up, then move memory while there is hardly any"
	@echo "make perf    set up, then how fast it has to be, on a host with nothing else to do"
	@echo "make check   the tests that need no virtual machine: seconds"
	@echo "make lint    formatters and checkers alone"
	@echo "make setup   packages and Python environment alone"

setup:
	@command -v python3 >/dev/null || { apt-get update && apt-get install -y python3; }
	@python3 scripts/bootstrap.py setup

demo: setup
	@./pageferry demo

test: setup
	@$(PYTHON) -m pytest -m "not ($(LONG))" --tb=short --durations=30

campaign: setup
	@./pageferry fault-campaign

torture: setup
	@$(PYTHON) -m pytest -m torture -s

selftests: setup
	@$(PYTHON) -m pytest -m selftests -rA --tb=short

builds: setup
	@$(PYTHON) -m pytest tests/builds --tb=short --durations=0

kcsan: setup
	@$(PYTHON) -m pytest -m kcsan --tb=short

pressure: setup
	@$(PYTHON) -m pytest -m pressure --tb=short

perf: setup
	@$(PYTHON) -m pytest -m perf

check: setup
	@$(PYTHON) -m pytest -m "not vm and not fault and not ($(LONG))" tests/unit tests/cli

lint: setup
	@$(PYTHON) -m pytest tests/style
