"""Worlds with faults whose jobs have processes, of a model of the shell host.

The execution service runs them as in a real instance: it launches them, finds them again, kills
them, reads their output and stores it. `python -m tests.processes A:B` plays the seeds from A up to
B, without B.
"""
