# Every target does its own set-up: a machine needs only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A test that hangs is named, with what each of its threads does, and the others go on.
PYTEST := $(BIN)/python -m pytest --timeout=300 --timeout-method=thread

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## these targets
	@echo "make TARGET; each sets up what it needs in $(VENV). Times are for two processors."
	@sed -n 's/^\([a-z-]*\):[^#]*## *\(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

$(READY): pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint .ci/constraints.txt --editable '.[test,check]'
	touch $(READY)

demo: $(READY) ## an instance at work: jobs run, fail, are canceled (half a minute)
	$(BIN)/flux-trio demo

# In three processes, since tests with real processes wait; `make test ARGS=-n0` is one after the other.
test: $(READY) ## the tests; ARGS for pytest, such as ARGS=tests/formats (10 min)
	$(PYTEST) -n3 --dist=worksteal -m "not gate and not real_flux" $(ARGS)

gate: $(READY) ## the tests of tests, and searches that take long (15 min)
	$(PYTEST) -n3 --dist=worksteal -m gate $(ARGS)
	$(MAKE) current

# What tests of instances and services say of both editions; `make test` says it of the classic one.
current: $(READY) ## tests of instances, services and recordings, in the edition current (half a minute)
	$(PYTEST) -p tests.support.current -n3 --dist=worksteal \
		-m "not real and not gate and not real_flux" \
		tests/instance tests/services tests/recordings $(ARGS)

real: $(READY) ## the tests with a live flux-core; they need `flux` on PATH (5 min)
	$(PYTEST) -n0 -m real_flux $(ARGS)

real-verbs: $(READY) ## what Flux's own programs say to us and to flux-core; needs `flux` (6 min)
	$(PYTEST) -n0 -m real_flux tests/real/test_verbs.py $(ARGS)

real-tests: $(READY) ## flux-core's own tests on us; FLUX_SOURCE is its built source, FILES some (2 h)
	$(BIN)/python -m tests.real.examiner $(FILES) $(ARGS)

real-conformance: $(READY) ## who keeps which clause, and how fast: a page; needs `flux` (12 min)
	$(BIN)/python -m tests.real.conformance $(ARGS)

administration: $(READY) ## hours of random administration, judged; HOURS=A:B, EDITION (20 min)
	$(PYTEST) -n2 --dist=worksteal tests/judge/test_random_administration.py \
		--administration $(or $(HOURS),0:300) --edition $(or $(EDITION),classic) $(ARGS)

reborn: $(READY) ## the tests with every core put down as JSON and taken up after each turn
	$(PYTEST) -n2 -p tests.support.reborn $(ARGS)

small-pages: $(READY) ## the tests of what works in pages, every page of two (half a minute)
	$(PYTEST) -n3 -p tests.support.small_pages -m "not real and not gate" \
		tests/cores tests/services tests/instance tests/recordings tests/lab/test_seeds.py \
		tests/store/backup tests/store/test_kvs_journal.py tests/store/test_kvs_stores.py $(ARGS)

check: $(READY) ## formatting, lint, types, layers (half a minute)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy -p tests.support -p tests.benchmarks -p tests.planter -p tests.explore -p tests.kill -p tests.processes -p tests.real.innocent -p tests.real.examiner
	MYPYPATH=plugins $(BIN)/mypy plugins/*.py
	$(BIN)/lint-imports

bench: $(READY) ## benchmarks, a line of JSON each; BENCH=NAME for one, EDITION (an hour)
	BENCH_EDITION=$(EDITION) $(BIN)/python -m tests.benchmarks $(BENCH)

kill: $(READY) ## kill an instance under load at COUNT moments; SEED shows one again (10 min)
	$(BIN)/python -m tests.kill $(or $(COUNT),200) $(SEED)

fuzz-wire: $(READY) ## COUNT broken frames of each wire; SEED again; SOCKET=1 at an instance (6 min)
	$(BIN)/python -m tests.fuzz $(and $(SOCKET),--socket) $(or $(COUNT),1000000) $(SEED)

processes: $(READY) ## worlds with faults whose jobs have processes; SEEDS=A:B (5 min)
	$(BIN)/python -m tests.processes $(or $(SEEDS),0:1000)

edits: $(READY) ## each message x field x operator of recordings, judged: which clause? (2 min)
	$(BIN)/python -m tests.planter edits --write

mutate-tables: $(READY) ## each row of the state tables wrong: which test notices? TABLE=ALLOC (2 h)
	$(BIN)/python -m tests.planter tables $(and $(TABLE),--only $(TABLE))

clause-proofs: $(READY) ## each clause broken: does its test fail? CLAUSE=27.alloc.1 (1 min)
	$(BIN)/python -m tests.planter clauses $(and $(CLAUSE),--only $(CLAUSE))

mutants: $(READY) ## planted mistakes: does fuzz find them? MISTAKE=ID, SEEDS=N (20 min)
	$(BIN)/python -m tests.planter mistakes $(and $(MISTAKE),--only $(MISTAKE)) \
		$(and $(SEEDS),--seeds $(SEEDS)); found=$$?; $(MAKE) mutants-explored && exit $$found

mutants-needs: $(READY) ## mistakes that are said to need a fault, without faults (half an hour)
	$(BIN)/python -m tests.planter needs $(and $(MISTAKE),--only $(MISTAKE))

mutants-explored: $(READY) ## mistakes that fuzz does not find: does explore? (half a minute each)
	$(BIN)/python -m tests.planter explored $(and $(MISTAKE),--only $(MISTAKE))

explore: $(READY) ## every interleaving of four small worlds; WORLD=NAME for one (7 min)
	$(BIN)/python -m tests.explore $(WORLD)

docs: $(READY) ## the pages, and a man page of each command
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint .ci/constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx --fail-on-warning --keep-going docs docs/_build
	$(BIN)/python -m docs.make_cli docs/_build/man

dist: $(READY) ## wheel and source archive, built twice and compared
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint .ci/constraints.txt --editable '.[dist]'
	$(BIN)/python -m tests.dist dist

clean: ## take away what the targets have made
	rm -rf $(VENV) docs/_build docs/reference/judge .mutants
