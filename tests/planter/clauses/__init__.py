"""Proofs that the tests notice what the clauses forbid.

A `Proof` is what breaks a clause as its `violation` says, and the test that then fails. Most are
operators (`operators.py`), which make something wrong in the running program; the others are
patches, edits of its source. The files rfcNN.toml hold them; `entries.py` reads these files and
checks them, `trying.py` runs the test's file with what is planted, `outcomes.py` is the pytest
plugin that plants operators and says how each test of that run ended, `results.py` has the status
of the clauses. `python -m tests.planter clauses --help` says how to run them.
"""
