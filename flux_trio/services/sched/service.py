"""The sched service: `SchedCore` under Trio."""

from __future__ import annotations

import trio

from flux_trio.broker import Handle
from flux_trio.config import SchedConfig
from flux_trio.editions import Edition
from flux_trio.messages import topics
from flux_trio.services.runner import run_core
from flux_trio.services.sched.core import SchedCore


async def run(
    handle: Handle,
    config: SchedConfig,
    edition: Edition,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `sched.*` until cancelled; ServiceExit when RFC 27 or 28 say to leave.

    Raises FluxError(EEXIST) before `task_status.started()` when there is a scheduler already.
    """
    handle.register(topics.SCHED)
    await run_core(handle, SchedCore(config, edition), task_status=task_status)
