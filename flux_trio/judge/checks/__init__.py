"""Checks of payloads, jobspecs, R and queue tables, one function per sentence of an RFC."""
