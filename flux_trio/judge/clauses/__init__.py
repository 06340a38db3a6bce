"""The clauses of the RFCs, and why some have no rule."""
