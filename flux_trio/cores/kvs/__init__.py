"""The kvs service decides the order of commits and reads, and answers when they are durable. Pure.

`core.KvsCore` serves the requests of `editions/kvs.py`. `ops` has the actions for a store
(`flux_trio.store`) and the store's answers.
"""
