"""Fetch the resources of the instance, and the resources that jobs hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flux_trio.cli.admin.resource_rows import Resources
from flux_trio.config import read_config
from flux_trio.messages import topics

if TYPE_CHECKING:
    from flux_trio.client import Client


async def fetch_resources(
    client: Client, *, with_jobs: bool = True
) -> tuple[dict[str, Any], Resources]:
    """Return the resource.status response and the resources; `with_jobs` adds what jobs hold."""
    status = await client.call(topics.RESOURCE_STATUS)
    held = (await client.call(topics.JOB_RESOURCE_STATUS))["allocated"] if with_jobs else None
    return status, Resources.read(status, held)


async def fetch_with_queues(client: Client) -> Resources:
    """Return the resources, the resources that jobs hold, and the ranks that each queue may use."""
    _, resources = await fetch_resources(client)
    config = read_config((await client.call(topics.CONFIG_GET))["config"])
    queues = {}
    for name in config.queues:
        constraint = config.constraint_for(name)
        every = resources.all
        queues[name] = every.ranks if constraint is None else constraint.select(every.targets)
    return replace(resources, queues=queues)
