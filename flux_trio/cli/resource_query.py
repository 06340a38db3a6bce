"""Asking the instance for its resources, and for what jobs hold of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from flux_trio.cli.resource_rows import Resources
from flux_trio.config import read_config
from flux_trio.messages import USERID_UNKNOWN, Errno, FluxError, topics
from flux_trio.protocols import RUNNING

if TYPE_CHECKING:
    from flux_trio.client import Client


async def fetch_resources(
    client: Client, *, with_jobs: bool = True
) -> tuple[dict[str, Any], Resources]:
    """The resource.status response, and the resources, with what jobs hold of them if wanted."""
    status = await client.call(topics.RESOURCE_STATUS)
    if not with_jobs:
        return status, Resources.read(status, [])
    running = {
        "max_entries": 0,
        "states": int(RUNNING),
        "userid": USERID_UNKNOWN,
        "queues": [],  # of all queues
    }
    jobs = (await client.call(topics.LIST_LIST, running))["jobs"]
    return status, Resources.read(status, await held_by(client, [job["id"] for job in jobs]))


async def fetch_with_queues(client: Client) -> Resources:
    """The resources with what jobs hold of them, and which of them each queue may use."""
    _, resources = await fetch_resources(client)
    config = read_config((await client.call(topics.CONFIG_GET))["config"])
    queues = {}
    for name, queue in config.queues.items():
        constraint = queue.constraint
        every = resources.all
        queues[name] = every.ranks if constraint is None else constraint.select(every)
    return replace(resources, queues=queues)


async def held_by(client: Client, jobids: list[int]) -> list[str]:
    """R of each job, asked for at once; a job that has just ended may have none."""
    held = []

    async def look_up(jobid: int) -> None:
        try:
            answer = await client.call(topics.INFO_LOOKUP, {"id": jobid, "keys": ["R"]})
        except FluxError as error:
            if error.errnum != Errno.ENOENT:
                raise
        else:
            held.append(answer["R"])

    async with anyio.create_task_group() as tasks:
        for jobid in jobids:
            tasks.start_soon(look_up, jobid)
    return held
