"""The job manager: RFC 21's states, and the job manager's side of RFC 27 and 32.

`core.JobManagerCore` is the pure whole; `scheduler_side` and `exec_side` hold the two
conversations, `ledger` the jobs and their events, `hooks` the questions to plugins.
"""
