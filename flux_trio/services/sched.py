"""The sched service: `SchedCore` under Trio."""

from __future__ import annotations

import trio

from flux_trio.broker import Handle
from flux_trio.config import Config
from flux_trio.cores.sched.core import SchedCore
from flux_trio.editions import Edition
from flux_trio.formats import FormatError
from flux_trio.jobtap import PluginError
from flux_trio.messages import Errno, FluxError, topics
from flux_trio.services.policy_files import scheduler_policies
from flux_trio.services.recorded_core import make_core
from flux_trio.services.runner import run_core


async def run(
    handle: Handle,
    config: Config,
    *,
    policy: str | None = None,
    edition: Edition | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `sched.*` until cancelled. Raises ServiceExit where RFC 27 or 28 tell it to end.

    `policy` overrides that of all queues, `edition` that of the configuration. Raises FluxError
    before `task_status.started()`: EINVAL for an unknown policy, EEXIST if there is a scheduler
    already.
    """
    try:
        sched, queues = scheduler_policies(config, policy)
    except (FormatError, PluginError) as error:
        raise FluxError(Errno.EINVAL, str(error)) from None
    edition = edition or config.edition_value
    handle.register(topics.SCHED)
    if edition.feasibility is not None:
        handle.register(topics.FEASIBILITY)
    handle.subscribe(topics.SERVICE_BACK_EVENT)
    turns = make_core(
        handle, SchedCore, sched, edition=edition, queues=queues, parents=config.parents
    ).turns
    await run_core(handle, turns, task_status=task_status)
