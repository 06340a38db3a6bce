"""Edits of recordings of real flux-core: is what is made wrong named by the judge?

`making.py` draws edits by a seed: a message or event deleted, repeated, moved, or one field
changed. `expected.txt` says of each, by kind, message and field, which clause it breaks, or why it
is harmless; it is written before the judge sees any (`table.py`). `trying.py` has each edit judged,
and `python -m tests.planter.edits` reports which were named by their clause, named otherwise, or
not at all. Findings are kept as those of the other mutants are, so that a run can be resumed.
"""
