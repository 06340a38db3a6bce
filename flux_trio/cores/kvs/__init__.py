"""The key-value store's decisions: order, durability before answers, watches. Pure.

`core.KvsCore` serves kvs.commit {ops}, lookup {key}, dir and count {prefix}, page {prefix, after,
limit}, watch {key}, watch-cancel; `ops` has what it asks of a store (`flux_trio.store`).
"""
