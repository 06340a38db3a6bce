"""Plants what is wrong, and says what nobody notices: `docs/how-we-know/planted.md`.

`mutating.py` runs the behaviour tests against a program that has one row of a state table wrong;
the folders have the other kinds. A `Family` lists `Mutant`s of one kind; `tables.py` is that of the
state tables. A mutant is planted in the memory of a test process (`planting.py`); no source file is
edited. `recording.py` writes down which tests reach the place of which mutant; `running.py`
collects the tests once and forks a process for each mutant, which runs the tests that reach it
first; `findings.py` keeps what was found, so that a run may be stopped and resumed.
"""
