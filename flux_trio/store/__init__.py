"""Stores: what keeps the values of the kvs, in memory or in one SQLite file that notices damage."""
