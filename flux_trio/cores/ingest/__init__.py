"""Ingest: takes submissions, checks jobspecs, gives out job ids, stores what RFC 16 asks for."""
