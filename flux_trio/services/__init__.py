"""Services: what runs the cores under Trio; one module each, with a function `run`.

A core (`flux_trio.cores`) holds the whole state of its service and decides; the service hands it
what one turn of the loop found waiting and performs its actions. `runner` is the one loop.
"""
