"""Plants what is wrong, and says what nobody notices: `docs/how-we-know/planted.md`.

`mutating.py` runs the behaviour tests against a program that has one row of a state table wrong;
the folders have the other kinds. A `Family` lists `Mutant`s of one kind; `tables.py` is that of the
state tables. A mutant is planted in the memory of a test process (`planting.py`, `operators.py`,
`coding.py`); no source file is edited. `running.py` collects the tests once and forks a process for
each mutant, which runs the tests that a `Plan` names: for a clause its own, for a row all, those
that reach it first (`recording.py` writes down which do). `findings.py` keeps what was found, so
that a run may be stopped and resumed.
"""
