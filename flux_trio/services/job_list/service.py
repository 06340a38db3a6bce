"""The job list under Trio."""

from __future__ import annotations

import trio

from flux_trio.broker import Handle
from flux_trio.messages import topics
from flux_trio.services.job_list.core import JobListCore
from flux_trio.services.runner import run_core


async def run(
    handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve `job-list.*` and `job-info.*` until cancelled."""
    handle.register(topics.JOB_LIST)
    handle.register(topics.JOB_INFO)
    await run_core(handle, JobListCore(), task_status=task_status)
