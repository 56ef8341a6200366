# Everything a newcomer or a build machine needs; each target sets itself up. Python >= 3.11 and make are enough.
#
#   make check PYTHON=python3.13 VENV=.venv-3.13   any target, on another Python, in an environment of its own
#   make demo    the demonstration        DIR=folder  FOLLOW=1  GUARANTEE=at-least-once  LOG=kafka|kafka://host:9092  SPARK=1
#   make check   lint, types, import direction, then the tests that need no server, start no workers and compute little
#   make test    lint, types, import direction, coverage of the core, then all tests but the wide searches
#   make repeat  whole runs of the tests, counted over days in docs/TESTS.md
#                KIND=quiet (or one-core, loaded, nohup, waits)  RUNS=1
#   make prove   wide searches by turns: tests, fresh seeds, mutants, chaos, machines, the model, peers
#                HOURS=1 (ended at any time, it goes on at the same commit)  WRITE=1 (what it covered, into docs)
#   make ship    what a release is tried with: other Pythons, brokers, the Docker engine, an audit
#                ONLY=NAME (one line of its table)  WRITE=1 (the table into docs)
#   make times   where the time of the last run of these went     WRITE=1 (tables into docs)
#   make shape   what the code is made of, in figures     LIST=1 (what they count)  WRITE=1 (the table into docs)
#   make coverage   branch coverage of protocol/ and framework/core by their own tests; says which lines are missing
#   make dist    the wheel and the source distribution, into dist/
#   make docs    the site, into site/; fails on a broken link     SERVE=1 (look at it while you write)
#   make docs-look   the site in Chromium at two widths, as pictures; fails if a page is too wide or a script fails
#   make bench   the benchmarks           LOG=kafka (a broker of its own) or kafka://host:9092
#                                         WRITE=1 (figures and tables into docs)
#                PEERS=1                  Flink, quixstreams, Kafka Streams, Spark beside it, on Kafka (needs Maven and a JDK)
#                EXPERIMENT=latency       QUICK=1  SECONDS_EACH=8 (of a run)  PEERS=1
#                EXPERIMENT=paper         the formal-model paper's experiments; MINUTES=7 (end and go on later)  ONLY=kills (a part)  PEERS=1
#                EXPERIMENT=intervals     early outputs, and throughput in aligned mode, from 100 ms to 10 minutes
#                EXPERIMENT=dead_producer what goes on while a worker is dead, in each mode
#                EXPERIMENT=snapshots     a new machine's first output, from the changelog and from a snapshot, on Kafka
#                EXPERIMENT=shared_channel  early records: kept, read again, and two other ways  ONLY="very late"
#                EXPERIMENT=idle          what a job without records takes of the processor, on Kafka
#                EXPERIMENT=pauses        how long apply, rescale and fork pause a job, on Kafka (root)
#                EXPERIMENT=cluster       members join, leave, die on machines of their own, beside Kafka Streams (root, Maven, a JDK)
#                EXPERIMENT=windows|joins each kind of window, or of join, beside the peers, on Kafka (Maven and a JDK)
#                EXPERIMENT=wide          what partitions cost, on Kafka    PEERS=1 (beside Kafka Streams)
#                EXPERIMENT=chain         the delay by the number of stages, on Kafka    PEERS=1 (beside Kafka Streams)
#                EXPERIMENT=damage        what a killed process costs by tasks, stages and mode, on Kafka
#                EXPERIMENT=reads         a key's read over HTTP while a job runs, and what the job loses  READS=200  RECORDS=1000000
#                EXPERIMENT=commits       what a commit costs behind 1 to 1,024 tasks, step by step
#                EXPERIMENT=backfill      on Spark       GROWTH=1 (only by keys and cores)
#                EXPERIMENT=backlog       jobs with kills on a day's backlog, beside Spark     LOG=kafka
#   make lint    only the checks that run no code
#   make pins    the exact version and the hashes of each package that pyproject.toml names, into requirements/
#                UPGRADE=1 (the newest versions that fit)
#   make simulate SEEDS=A..B   the simulator on these seeds   SEED=N (one, with its trace)  MUTANT=name  MUTANTS=1 (all)
#                              MUTANTS=mend (those whose known seed shows them no more, after a change of the core)
#                              WRITE=1 (the seeds counted, or the hunts of all mutants, into docs)
#   make model   small jobs in every order                    FULL=1 (wide bounds)
#   make chaos KILLS=N         real workers, killed N times   LOG=kafka (a broker of its own) or kafka://host:9092
#              MINUTES=N       random jobs under random troubles, each through an upgrade, instead (LOG=kafka: brokers of its own)
#                              WRITE=1 (the run into docs, as for MUTANTS=1)
#   make machines TAKEOVERS=N  partitions move between machines, which are killed, cut off, frozen: network namespaces, as root
#                              MODE=deterministic  WRITE=1  FAULTS=N (the members of a job move them, instead of an assigner)
#                              FLAPPING=SECONDS (one member joins and dies again and again)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BEGAN := $(shell date +%s)
VENV := .venv
BIN := $(VENV)/bin
PINS := pyproject.toml $(wildcard requirements/*.txt)
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Four more than cores: much of a test is waiting, for processes that start and for brokers.
PYTEST_WORKERS ?= $(shell expr $(CORES) + 4)
PYTEST = $(BIN)/pytest -n $(PYTEST_WORKERS) --maxprocesses 8 --dist worksteal
COVERED := tests/protocol tests/core
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Images of Python set it. Then each of the many processes that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Read by the demonstration from the environment; only those that were given.
$(foreach v,DIR FOLLOW GUARANTEE LOG SPARK,$(if $($v),$(eval export $v)))

# The first Python that is new enough, unless PYTHON names one.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# install(files): uv installs requirements/FILE.txt, and pip where uv cannot: the same versions, checked by their hashes.
# The first file has what builds the packages of the next, so nothing is fetched for a build.
define install
	@echo "Installing $(1:%=requirements/%.txt) into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt 2>/dev/null || true
	@install() { $(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python --no-build-isolation "$$@" 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --no-build-isolation "$$@"; }; \
	for file in $(1); do install --require-hashes -r requirements/$$file.txt; done; install --no-deps -e .
	@touch $@
endef

# took(command): how long it took, with the set-up, and what was computed, for `make times`.
took = @$(BIN)/python -m tests.suite.times --ended $(1) --began $(BEGAN) --make $$PPID

.PHONY: help demo check test compiled repeat prove ship shape times coverage docs docs-look dist simulate model chaos machines bench lint format pins venv clean same-python

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

demo: $(VENV)/.installed$(if $(SPARK),-dev)
	@$(BIN)/python -m tasks.demo

# Each test once: those of the protocol and the core with coverage, then all others.
test: $(VENV)/.installed-dev
	@rm -rf .times
	@$(MAKE) --no-print-directory --jobs $(CORES) --output-sync lint coverage $(VENV)/spark-classes.jsa compiled
	$(PYTEST) -m 'check or test' $(addprefix --ignore=,$(COVERED))
	$(call took,test)

# These tests wait little: two more processes than cores.
check: lint
	@rm -rf .times
	$(PYTEST) -n $(shell expr $(CORES) + 2) -m check
	$(call took,check)

# pytest rewrites each assert and keeps the result. It is done once here: all its processes would do it, at the same time.
compiled: $(VENV)/.installed-dev
	@$(BIN)/pytest -qq --collect-only -m 'check or test' $(addprefix --ignore=,$(COVERED)) > /dev/null || true  # the run itself says what is wrong

repeat: $(VENV)/.installed-dev $(VENV)/spark-classes.jsa
	@$(BIN)/python -m tests.suite.repeat --kind $(or $(KIND),quiet) --runs $(or $(RUNS),1) -- \
		$(if $(filter waits,$(KIND)),$(PYTEST) -m 'check or test',make --no-print-directory test)

prove: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.suite.prove --hours $(or $(HOURS),1)

ship: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.suite.ship $(if $(ONLY),--only '$(ONLY)')

shape: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.suite.shape $(if $(LIST),--list) $(if $(WRITE),--write)

times: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.suite.times

# These tests wait for nothing: a process for each core.
coverage: $(VENV)/.installed-dev
	$(PYTEST) -n $(CORES) -m 'check or test' $(COVERED) --cov --cov-report=term-missing

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(SERVE),serve,build --strict)

docs-look: docs
	$(BIN)/python -m docs.hooks.look

dist: $(VENV)/.installed-dev
	$(BIN)/python -m build --no-isolation --outdir dist .

simulate: $(VENV)/.installed
	$(BIN)/python -m tests.verification.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(MUTANT),--mutant $(MUTANT)) $(if $(MUTANTS),--$(if $(filter mend,$(MUTANTS)),mend,all)-mutants)

model: $(VENV)/.installed
	$(BIN)/python -m tests.verification.model $(if $(FULL),--full)

chaos: $(VENV)/.installed
	$(BIN)/python -m tests.verification.chaos.$(if $(MINUTES),jobs --minutes $(MINUTES),kills \
		--kills $(or $(KILLS),100)) --log $(or $(LOG),embedded)

machines: $(VENV)/.installed
	$(BIN)/python -m tests.verification.machines.$(if $(FLAPPING),flapping --seconds $(FLAPPING),$(if $(FAULTS),members \
		--faults $(FAULTS),takeovers --takeovers $(or $(TAKEOVERS),100))) --mode $(or $(MODE),aligned)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks$(if $(EXPERIMENT),.$(EXPERIMENT))

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo & imports=$$!; $(BIN)/mypy; wait $$imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# For each platform and Python. What builds packages is pinned like what runs.
COMPILE = $(BIN)/uv pip compile --quiet --system-certs --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-header $(if $(UPGRADE),--upgrade) - --output-file
pins: $(VENV)/.installed-dev
	printf 'hatchling\nsetuptools\n' | $(COMPILE) requirements/dev.txt pyproject.toml --all-extras
	printf 'hatchling\nsetuptools\n' | $(COMPILE) requirements/grete.txt pyproject.toml --constraints requirements/dev.txt
	echo uv | $(COMPILE) requirements/uv.txt

venv: $(VENV)/.installed-dev

clean:
	rm -rf $(VENV) build dist site .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: newer than what they depend on means nothing to do.
$(VENV)/.installed: $(PINS) | $(BIN)/python same-python
	$(call install,grete)

$(VENV)/.installed-dev: $(PINS) | $(BIN)/python same-python
	$(call install,grete dev)
	@touch $(VENV)/.installed

# A third of what the tests compute in Java was to load and check Spark's classes.
$(VENV)/spark-classes.jsa: $(VENV)/.installed-dev
	$(BIN)/python -m tests.spark.kept_classes 2> /dev/null

$(BIN)/python:
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "grete needs Python 3.11 or newer; found: $$($(or $(PYTHON),python3) --version 2>&1 || true)." >&2; \
		echo "Install one, or name one: make $(or $(MAKECMDGOALS),test) PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment: install its venv module" >&2; \
		echo "(Debian, Ubuntu: apt install python3-venv) and run make again." >&2; exit 1; }

# An environment keeps the Python that made it: PYTHON=another is refused, not ignored.
VERSION_OF := -c 'import sys; print("%d.%d" % sys.version_info[:2])'
same-python: | $(BIN)/python
ifeq ($(origin PYTHON),command line)
	@has=$$($(BIN)/python $(VERSION_OF)); asked=$$($(PYTHON) $(VERSION_OF)); [ $$has = $$asked ] || { \
		echo "$(VENV) has Python $$has, and $(PYTHON) is Python $$asked. Give it an environment of its own:" >&2; \
		echo "make $(or $(MAKECMDGOALS),test) PYTHON=$(PYTHON) VENV=.venv-$$asked" >&2; exit 1; }
endif
