"""The execution service's decisions: it runs or simulates the jobs that the job manager starts.

`core.ExecCore` is the pure whole (RFC 32). Processes belong to the shell host (`flux_trio.shell`).
"""
