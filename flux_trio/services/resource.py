"""The resource service: `ResourceCore` under Trio, and the processes of the check command."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from flux_trio.broker import Handle
from flux_trio.clock import Durations
from flux_trio.config import CheckConfig
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.editions import CLASSIC, Edition
from flux_trio.formats import Idset, ResourceSet, parse_duration
from flux_trio.messages import topics
from flux_trio.services.recorded_core import make_core
from flux_trio.services.resource_checks import CheckRunner
from flux_trio.services.runner import no_other_actions, run_core


async def run(
    handle: Handle,
    inventory: ResourceSet,
    exclude: Idset,
    *,
    missing: Mapping[int, str] | None = None,
    check: CheckConfig | None = None,
    edition: Edition = CLASSIC,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `resource.*` until cancelled; `exclude` is the exclude group (RFC 28).

    `missing` says by target what this machine lacks, `check` is the check command. Requests wait
    until the eventlog of earlier runs is read from the kvs. Raises ServiceExit if it cannot be
    read, FluxError(EEXIST) if there is a resource service already.
    """
    handle.register(topics.RESOURCE)
    if check is None:
        made = make_core(handle, ResourceCore, inventory, exclude, missing=missing, edition=edition)
        await run_core(handle, made.turns, no_other_actions, task_status=task_status)
        return
    interval_s = parse_duration(check.interval)
    made = make_core(
        handle,
        ResourceCore,
        inventory,
        exclude,
        missing=missing,
        check_interval_s=interval_s,
        edition=edition,
    )
    runner = CheckRunner(check, inventory.nnodes, handle.post, Durations.of(handle.now))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.serve)
        await run_core(handle, made.turns, runner.run_nowait, task_status=task_status)
