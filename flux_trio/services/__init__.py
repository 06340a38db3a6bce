"""Services run the cores under Trio: a module for each, with a function `run`.

A core (`flux_trio.cores`) holds the whole state of its service and decides. The service hands it
the inputs of each turn and performs its actions; the loop is in `runner`.
"""
