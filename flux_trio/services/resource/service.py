"""The resource service: `ResourceCore` under Trio."""

from __future__ import annotations

import trio

from flux_trio.broker import Handle
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import topics
from flux_trio.services.resource.core import ResourceCore
from flux_trio.services.runner import run_core


async def run(
    handle: Handle,
    inventory: ResourceSet,
    exclude: Idset,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `resource.*` until cancelled; `exclude` is the exclude group (RFC 28).

    Requests wait until the drains of earlier runs are read from the kvs; ServiceExit when they
    cannot be. FluxError(EEXIST) when the name is taken.
    """
    handle.register(topics.RESOURCE)
    await run_core(handle, ResourceCore(inventory, exclude), task_status=task_status)
