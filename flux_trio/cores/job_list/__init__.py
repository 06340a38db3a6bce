"""job-list and job-info: what users read about jobs, from the journal and from the kvs.

`core.JobListCore` is the core: `follow` and `scan` keep the `records` up to date, `listing`
answers job-list, `info` answers job-info, `details` reads jobspec and R.
"""

from flux_trio.cores.job_list.core import JobListCore

__all__ = ["JobListCore"]
