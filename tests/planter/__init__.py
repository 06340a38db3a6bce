"""Plants mutants: runs the behaviour tests against a program that has one fact wrong.

A `Family` lists `Mutant`s of one kind; `tables.py` is the family of the state tables. A mutant is
planted in the memory of a test process (`planting.py`); no source file is edited. `recording.py`
writes down which tests reach the place of which mutant; `running.py` collects the tests once and
forks a process for each mutant, which runs the tests that reach it first; `findings.py` keeps what
was found, so that a run may be stopped and resumed. `python -m tests.planter --help` says how.
"""
