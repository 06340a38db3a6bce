"""The shell host: a program that runs the processes of jobs and outlives the instance.

`python -m flux_trio.shell DIRECTORY` starts it; `protocol` has the messages between the
execution service and the shell host. It must start fast, so this file imports nothing.
"""
