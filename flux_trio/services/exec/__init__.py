"""The execution service: runs jobs, or pretends to, when the job manager says so (RFC 32).

`core` decides, `service` runs it. Processes belong to the shell host, a process of its own that
outlives both (`shell_host`); it imports from this package, so this file imports nothing.
"""
