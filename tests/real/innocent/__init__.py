"""Innocent stories on a live flux-core: drawn from a seed, played, and judged in four ways.

A kind is an act at jobs in a state. `kinds` has the acts and states and draws a story, `play` is
the program of an instance that plays it while it is traced, `judging` asks what each judge says,
and `page` tells of a run.
"""
