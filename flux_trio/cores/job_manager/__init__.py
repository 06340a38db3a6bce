"""The job manager: RFC 21's states, and the job manager's side of RFC 27, 32 and 33.

`core.JobManagerCore` is the core. Each conversation has a folder: `jobs` (the ledger, their
events, restart, purge), `scheduler`, `execution`, `hooks` (plugins), `queues`, `requests` (users).
"""
