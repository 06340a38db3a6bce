"""Which clauses the implementations of the RFCs keep, from the same stories in a live instance of
each: `make real-conformance` plays them, judges their traces and writes the page.
"""
