"""The statistics of all services of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flux_trio.messages import Errno, FluxError, topics

if TYPE_CHECKING:
    from flux_trio.client import Client

SERVICES: Final = (
    topics.JOB_MANAGER,
    topics.SCHED,
    topics.KVS,
    topics.JOB_EXEC,
    topics.JOB_LIST,
    topics.RESOURCE,
    topics.JOB_INGEST,
    topics.BROKER,
)


async def gather(client: Client) -> dict[str, Any]:
    """Return the statistics of each service that is loaded, and of the plugins' hooks."""
    found: dict[str, Any] = {}
    for service in SERVICES:
        try:
            found[service] = await client.call(topics.stats_of(service))
        except FluxError as error:
            if error.errnum != Errno.ENOSYS:
                raise
    found["jobtap"] = await _hooks(client) if topics.JOB_MANAGER in found else {}
    return found


async def _hooks(client: Client) -> dict[str, Any]:
    hooks = {}
    for name in (await client.call(topics.JOB_JOBTAP_LIST, {"all": True}))["plugins"]:
        try:
            hooks[name] = (await client.call(topics.JOB_JOBTAP_QUERY, {"name": name}))["hooks"]
        except FluxError:
            continue  # it was removed meanwhile
    return hooks
