# Every target does its own set-up: a machine needs only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test reborn check bench kill fuzz-wire processes mutate-tables explore docs clean edits clause-proofs mutants mutants-needs mutants-explored dist

$(READY): pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint .ci/constraints.txt --editable '.[test,check]'
	touch $(READY)

demo: $(READY)
	$(BIN)/flux-trio demo

# In two processes, for a machine of two cores; `make test ARGS=-n0` is one after the other.
test: $(READY)
	$(BIN)/python -m pytest -n2 $(ARGS)

# The same tests with every core replaced after every turn by one that has nothing but its state.
reborn: $(READY)
	$(BIN)/python -m pytest -n2 -p tests.support.reborn $(ARGS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy -p tests.support -p tests.benchmarks -p tests.planter -p tests.proofs -p tests.mistakes -p tests.explore -p tests.processes
	MYPYPATH=plugins $(BIN)/mypy plugins/*.py
	$(BIN)/lint-imports

# Timings, memory and growth: less than an hour of one processor; each figure is printed when it is known.
# BENCH=NAME for one.
bench: $(READY)
	$(BIN)/python -m tests.benchmarks $(BENCH)

# Kill an instance COUNT times under load: ten minutes for the usual 200. SEED shows a round again, or
# goes on after Ctrl-C: each round prints the command for it.
kill: $(READY)
	$(BIN)/python -m tests.kill $(or $(COUNT),200) $(SEED)

# Bad frames, payloads and bytes at the door: COUNT of them; four minutes for the usual million. SEED
# shows a round again, or goes on after Ctrl-C: each round prints the command for it.
fuzz-wire: $(READY)
	$(BIN)/python -m tests.fuzz $(or $(COUNT),1000000) $(SEED)

# Worlds with faults whose jobs have processes, of a model of the shell host: SEEDS=A:B; about 200 a
# minute on two processors.
processes: $(READY)
	$(BIN)/python -m tests.processes $(or $(SEEDS),0:1000)

# Edits of recordings of flux-core, judged: which are not named; about a minute of one processor.
edits: $(READY)
	$(BIN)/python -m tests.planter.edits --write

# Each row of the state tables wrong, one at a time: which test notices? At most two hours on two
# processors; a run that was stopped goes on. TABLE=ALLOC for one table.
mutate-tables: $(READY)
	$(BIN)/python -m tests.planter tables $(and $(TABLE),--only $(TABLE))

# Each clause broken by an edit of the program: does its test fail? At most two hours on two processors;
# a run that was stopped goes on. CLAUSE=27.alloc.1 for one.
clause-proofs: $(READY)
	$(BIN)/python -m tests.proofs $(and $(CLAUSE),--clause $(CLAUSE))

# Each planted mistake: does fuzz find it within 1,000 seeds, or explore what fuzz leaves alive? Twenty
# minutes, and as long for FAMILY=actions; at most two hours for FAMILY=rows. MISTAKE=id for one, SEEDS for fewer seeds.
mutants: $(READY)
	$(BIN)/python -m tests.mistakes $(FAMILY) $(and $(MISTAKE),--only $(MISTAKE)) \
		$(and $(SEEDS),--seeds $(SEEDS)); found=$$?; $(MAKE) mutants-explored && exit $$found

# The mistakes that are labelled as if they needed a fault, in 300 worlds without faults each: half an
# hour; none may be found.
mutants-needs: $(READY)
	$(BIN)/python -m tests.mistakes needs $(and $(MISTAKE),--only $(MISTAKE))

# The second half alone: half a minute of a processor for each mutant that is not found.
mutants-explored: $(READY)
	$(BIN)/python -m tests.mistakes.exploring $(FAMILY) $(and $(MISTAKE),--only $(MISTAKE))

# Every interleaving of the small worlds: seven minutes on two processors; WORLD=NAME for one.
# A world that was finished is not explored again while the program stays as it is.
explore: $(READY)
	$(BIN)/python -m tests.explore $(WORLD)

docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint .ci/constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx --fail-on-warning --keep-going docs docs/_build
	$(BIN)/python -m docs.make_cli docs/_build/man

# Wheel and source archive, checked, and the same bytes when they are built again.
dist: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint .ci/constraints.txt --editable '.[dist]'
	$(BIN)/python -m tests.dist dist

clean:
	rm -rf $(VENV) docs/_build docs/reference/judge .mutants
