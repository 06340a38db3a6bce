"""Edits of recordings of real flux-core: is what is made wrong named by the judge?

`making.py` has one edit for each role, message or event, field and operator. `expected.txt` says of
each which clause it breaks, or why it is excused, from the text of the RFCs (`table.py`).
`trying.py` has each edit judged, and `python -m tests.planter edits` reports which were named by
their clause, named otherwise, or not at all. Findings are kept as those of the other mutants are,
so that a run can be resumed.
"""
