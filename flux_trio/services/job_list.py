"""The job list under Trio."""

from __future__ import annotations

import trio

from flux_trio.broker import Handle
from flux_trio.config import Config
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.messages import topics
from flux_trio.services.recorded_core import make_core
from flux_trio.services.runner import run_core


async def run(
    handle: Handle,
    config: Config | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `job-list.*` and `job-info.*` until cancelled; `config` has the default queue."""
    handle.register(topics.JOB_LIST)
    handle.register(topics.JOB_INFO)
    handle.subscribe(topics.SERVICE_BACK_EVENT)
    handle.subscribe(topics.JOB_PURGE_EVENT)
    turns = make_core(handle, JobListCore, config).turns
    await run_core(handle, turns, task_status=task_status)
