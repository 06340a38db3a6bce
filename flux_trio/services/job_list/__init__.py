"""job-list and job-info: what users read about jobs, followed from the journal, read from the kvs.

`core.JobListCore` is the pure whole: `follow` and `scan` keep the `records` up to date, `listing`
answers job-list, `info` answers job-info, `details` reads jobspec and R. `run` serves both.
"""

from flux_trio.services.job_list.core import JobListCore
from flux_trio.services.job_list.service import run

__all__ = ["JobListCore", "run"]
