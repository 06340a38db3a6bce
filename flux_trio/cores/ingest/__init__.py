"""Ingest takes submissions, checks jobspecs, gives out job ids and stores new jobs (RFC 16)."""
