# SPDX-License-Identifier: GPL-2.0-only
# Shortcuts for ./pageferry and pytest.

PYTHON = $$(python3 scripts/bootstrap.py python)

# Markers of tests that `make test` leaves out. Each has a target.
LONG = perf or torture or selftests or builds or kcsan or pressure or packages or loads or damo
# The base after the default one.
NEXT = 7.3

.PHONY: help setup demo test test-next campaign torture selftests builds kcsan \
	pressure perf loads damo-scripts check lint deb packages-proof packages-proof-debian

help:
	@echo "make demo       build the kernel, boot it, move memory, print a table"
	@echo "make test       run the tests: build kernels, boot machines"
	@echo "make test-next  run those that boot machines, with Linux $(NEXT)"
	@echo "make check      run the tests that need no virtual machine"
	@echo "make lint       run formatters and checkers"
	@echo "make deb        make the Debian package of the tool, in dist/"
	@echo "make setup      install packages and the Python environment"
	@echo "make campaign   move 200,000 folios with DMA channels that fail"
	@echo "make torture    move memory for an hour while programs use it"
	@echo "make selftests  run the kernel's selftests on stock Linux and on ours"
	@echo "make builds     compile many kernel configurations, some of them random"
	@echo "make kcsan      search for data races in selftests and torture"
	@echo "make pressure   move memory while it is short"
	@echo "make loads      try the balancer on 10,000 loads, and fail calls of both services"
	@echo "make damo-scripts DAMO=DIR  run the scripts of damo's source with Linux $(NEXT)"
	@echo "make perf       check the speed, on an idle host"
	@echo "make packages-proof         install both packages on Debian 13, and purge them"
	@echo "make packages-proof-debian  the same with Debian's configuration: hours"
	@echo "All targets but help run setup first."

setup:
	@command -v python3 >/dev/null || { apt-get update && apt-get install -y python3; }
	@python3 scripts/bootstrap.py setup

demo: setup
	@./pageferry demo

test: setup
	@$(PYTHON) -m pytest -m "not ($(LONG))" --tb=short --durations=30

test-next: setup
	@PAGEFERRY_BASE=$(NEXT) $(PYTHON) -m pytest tests/vm tests/fault \
		-m "not ($(LONG))" --tb=short --durations=30

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

loads: setup
	@$(PYTHON) -m pytest -m loads -s tests/loads tests/unit/test_service_faults.py \
		tests/unit/test_service_days.py

damo-scripts: setup
	@DAMO="$(DAMO)" $(PYTHON) -m pytest -m damo -rA --tb=short tests/vm/test_damo_scripts.py

perf: setup
	@$(PYTHON) -m pytest -m perf

check: setup
	@$(PYTHON) -m pytest -m "not vm and not fault and not ($(LONG))" tests/unit tests/cli

deb: setup
	@$(PYTHON) scripts/make_deb.py dist

packages-proof: setup
	@$(PYTHON) -m pytest -m "packages and not debian_config" -rA --tb=short tests/packages

packages-proof-debian: setup
	@$(PYTHON) -m pytest -m debian_config -rA --tb=short tests/packages

lint: setup
	@$(PYTHON) -m pytest tests/style
