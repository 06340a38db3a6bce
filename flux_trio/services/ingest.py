"""Ingest under Trio."""

from __future__ import annotations

import trio

from flux_trio.broker import Handle
from flux_trio.config import Config
from flux_trio.cores.ingest.core import IngestCore
from flux_trio.messages import topics
from flux_trio.services.recorded_core import make_core
from flux_trio.services.runner import run_core


async def run(
    handle: Handle, config: Config, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve `job-ingest.*` until cancelled."""
    handle.register(topics.JOB_INGEST)
    handle.subscribe(topics.SERVICE_BACK_EVENT)
    await run_core(handle, make_core(handle, IngestCore, config).turns, task_status=task_status)
