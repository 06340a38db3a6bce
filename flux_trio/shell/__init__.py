"""The shell host: a program of its own that runs the processes of jobs and outlives the instance.

`python -m flux_trio.shell.host DIRECTORY` starts it; `protocol` is what the execution service and
the shell host say to each other. It has to be up at once, so nothing is imported here.
"""
