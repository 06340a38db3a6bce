"""The execution service's decisions: it runs jobs, or pretends to, when the job manager says so.

`core.ExecCore` is the pure whole (RFC 32). Processes belong to the shell host (`flux_trio.shell`).
"""
