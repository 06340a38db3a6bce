"""Proofs that the tests notice what the clauses forbid.

A `Proof` is what breaks a clause as its `violation` says, and the test that then fails. Most are
operators (`operators.py`), which make something wrong in the running program; the others are
patches, edits of its functions. The files rfcNN.toml hold them; `entries.py` reads these files and
checks them, `trying.py` has `running.py` run the tests, and judges how they fail, `results.py` has
the status of the clauses. `python -m tests.planter clauses --help` says how to run them.
"""
