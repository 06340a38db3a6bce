"""What has to hold in a world, beside the clauses of the RFCs."""
