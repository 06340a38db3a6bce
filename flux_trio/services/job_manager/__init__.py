"""The job manager: RFC 21's states, and the job manager's side of RFC 27 and 32.

`core.JobManagerCore` is the pure whole; `scheduler_side` and `exec_side` hold the two
conversations, `ledger` the jobs and their events, `hooks` the questions to plugins, `queues` and
`entrance` RFC 33's queues and who may use them.
"""

from flux_trio.services.job_manager.entrance import User
from flux_trio.services.job_manager.user_database import unix_user

__all__ = ["User", "unix_user"]
