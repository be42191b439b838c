# Everything a contributor types. A machine needs Python >= 3.11 and make; `make test` does the rest.

VENV   := .venv
BIN    := $(VENV)/bin
comma  := ,
STAMP  := $(VENV)/.installed
# Java 17 or later runs Spark; where there is none, a package brings one.
JAVA   := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
HAS_JAVA := $(shell "$(JAVA)" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' && echo yes)
EXTRAS := dev,docs,report,watch,tui,s3,rocksdb,sql,delta,iceberg,spark$(if $(HAS_JAVA),,$(comma)spark-java)
# Which cases `make slow` runs: every one, or every Nth of each test; N+K: from the Kth on.
EVERY  ?= 1
# The first Python that is new enough; say `make PYTHON=/path/to/python3` to choose.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

.DEFAULT_GOAL := help
.PHONY: help venv test quick slow spark spark-slow pythons interop bench bench-once lint fix demo docs dist clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## make .venv and install everything pinned in constraints.txt

test: $(STAMP) ## run the tests
	$(BIN)/pytest -q -n auto

quick: $(STAMP) ## run a sample of the tests: of each the first and every 50th case
	$(BIN)/pytest -q -n auto --every 50

slow: $(STAMP) ## run the tests that take more than a few seconds; `make slow EVERY=20+K`: a sample of the long tables
	$(BIN)/pytest -q -n auto --every $(EVERY) -m "slow and not interop and not spark" || [ $$? -eq 5 ]

pythons: ## run the tests on each Python from 3.11 to 3.14 that is here
	@for version in 3.11 3.12 3.13 3.14; do \
		"python$$version" -c '' 2>/dev/null || { echo "python$$version is not here"; continue; }; \
		$(MAKE) test VENV=$(VENV)/python$$version PYTHON=python$$version || exit 1; \
	done

spark: $(STAMP) ## run the tests that start Spark, a cluster of two workers among them
	$(BIN)/pytest -q -m "spark and not slow"

spark-slow: $(STAMP) ## run the long tests of Spark: forty stores on two workers, executors killed in the middle
	$(BIN)/pytest -q -m "spark and slow" --ignore tests/benchmarks

interop: $(STAMP) ## run the tests against classes of released brokers (needs Java and Maven)
	$(BIN)/pytest -q -m interop
	RMQCTL_BENCH=once $(BIN)/pytest -q -m interop tests/benchmarks

bench-once: $(STAMP) ## run the benchmarks once at a tiny size, so that none rots (not those of brokers and Spark)
	RMQCTL_BENCH=once $(BIN)/pytest -q -m "not interop and not spark" tests/benchmarks

bench: $(STAMP) ## measure speed on large stores, as ratios
	$(BIN)/pytest -q -m "" -s tests/benchmarks

lint: $(STAMP) ## check style, types, spelling and the import arrow
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

fix: $(STAMP) ## mend what the linters can mend themselves
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(STAMP) ## unpack a real store, show it, damage it, find the damage, mend it
	@PATH="$(CURDIR)/$(BIN):$$PATH" fixtures/demo

docs: $(STAMP) ## make the site in build/site, without a network; a warning is an error
	$(BIN)/python -m docs.make_site build/site

# What lies in the one file: all that needs no JVM. It is for the Python and the platform that it was made with.
DIST   ?= dist
PACKED := $(VENV)/packed
dist: $(STAMP) ## make dist/: wheel, sdist, one file that needs only Python, list of what is in it (SBOM), checksums
	rm -rf $(DIST) $(PACKED)
	$(BIN)/hatchling build -t wheel -t sdist -d $(DIST)
	$(BIN)/python -m venv --without-pip $(PACKED)
	wheel=$$(ls $(DIST)/*.whl) && $(BIN)/python -m pip --python $(PACKED)/bin/python install --quiet \
		--constraint constraints.txt "$$wheel[sql,rocksdb,s3,report,watch,tui]"
	$(BIN)/cyclonedx-py environment --output-reproducible --of JSON -o $(DIST)/rmqctl.cdx.json $(PACKED)
	name=$$($(BIN)/python -c 'import sys, sysconfig; print("cp%d%d-%s" % (*sys.version_info[:2], sysconfig.get_platform()))') && \
		$(BIN)/shiv --reproducible --console-script rmqctl --python '/usr/bin/env python3' \
		--site-packages $(PACKED)/lib/python3*/site-packages --output-file $(DIST)/rmqctl-$$name.pyz
	cd $(DIST) && sha256sum * > SHA256SUMS

clean: ## remove .venv and everything that tools have left behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "no Python >= 3.11 found; install one, or type: make PYTHON=/path/to/python3"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

# pip first: the one that came with Python may be too old for the pinned wheels. The build back end is
# installed like everything else, so that it is pinned too; so is what builds PySpark, which comes as source only.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[$(EXTRAS)]'
	@touch $@
