"""The clauses of the RFCs, and what is known of each."""
