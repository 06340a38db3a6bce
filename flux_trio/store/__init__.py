"""Stores for the values of the kvs: in memory, or in one SQLite file with damage detection."""
