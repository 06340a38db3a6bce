"""Proofs that the tests notice what the clauses forbid.

A `Proof` is an edit of the program that does what a clause's `violation` says, and the test that
then fails. The files rfcNN.toml hold them; `entries.py` reads these files and checks them,
`trying.py` applies an edit in a copy of the tree and runs the test's file there, `outcomes.py` is
the pytest plugin that says how each test of that run ended, `results.py` keeps which clauses are
proven, in the files rfcNN.proven. `python -m tests.proofs --help` says how to run them.
"""
