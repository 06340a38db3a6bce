"""The job in which `flux-trio start` runs: its R is the inventory of the new instance.

RFC 20: an instance gets its resources from the enclosing instance, re-ranked. That is a flux-trio
or a flux-core (`enclosing_flux`). When the job gets a new expiration, so does the instance: it
watches the job's eventlog (readings: How exec learns of cancels). Left out: more than one broker.
The first task of the job runs the instance, which has all resources of the job; the others wait for
its end (`together`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import trio

from flux_trio import client
from flux_trio.cli.instance.enclosing_flux import KEYS, read_flux_job, tell_flux, watch_flux_job
from flux_trio.client import (
    FLUX_URI_VARIABLE,
    INSIDE_VARIABLE,
    JOB_VARIABLE,
    LOCAL_SCHEME,
    STATEDIR_VARIABLE,
    TASK_VARIABLE,
    TOKEN_VARIABLE,
    URI_VARIABLE,
    ClientError,
    find_instance,
    is_in_job,
    is_of_ours,
)
from flux_trio.cores.exec.tasks import PATH_VARIABLE, TMPDIR_VARIABLE, TOP
from flux_trio.formats import (
    Event,
    FormatError,
    ResourceSet,
    parse_duration,
    parse_event,
    parse_eventlog,
    parse_fluid,
)
from flux_trio.instance import Enclosing, Instance
from flux_trio.messages import FluxError, Level, topics
from flux_trio.protocols import JobEvent
from flux_trio.transports import TransportError

RETRY_S_MIN: Final = 1.0  # a restart of the enclosing instance takes seconds
RETRY_S_MAX: Final = 60.0
ENCLOSING_VARIABLE: Final = "FLUX_ENCLOSING_ID"
PARENT_VARIABLE: Final = "FLUX_TRIO_PARENT_URI"
# These variables name the enclosing instance and the job. The commands and jobs of the new instance
# do not belong to that job.
NOT_INHERITED: Final = (
    URI_VARIABLE,
    TOKEN_VARIABLE,
    STATEDIR_VARIABLE,
    INSIDE_VARIABLE,
    JOB_VARIABLE,
    TASK_VARIABLE,
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_TASK_LOCAL_ID",
    PATH_VARIABLE,
    TMPDIR_VARIABLE,
    "FLUX_KVS_NAMESPACE",
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "FLUX_TRIO_RANK",
    "FLUX_TRIO_HOST",
)


class EnclosingError(Exception):
    """The job's resources cannot be read; the text says why."""


class Allocation(msgspec.Struct, frozen=True):
    """The enclosing instance, and the job's R after the first `nevents` events of its eventlog.

    When the job is ended, `kill_timeout_s` is the time between SIGTERM and SIGKILL.
    """

    enclosing: Enclosing
    resources: ResourceSet
    nevents: int
    kill_timeout_s: float


async def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation of this process's job, or None outside a job. Raises EnclosingError."""
    if not is_in_job(environ):
        return None
    name = environ[JOB_VARIABLE]
    path = environ.get(PATH_VARIABLE, f"{TOP}{name}")
    try:
        jobid = parse_fluid(name)
        read = _read_ours if is_of_ours(environ) else read_flux_job
        uri, level, found, kill_timeout = await read(environ, jobid)
        resources = ResourceSet.parse(found["R"].encode(), "R")
        events = parse_eventlog(found["eventlog"])
        for event in events:
            if (expiration := _new_expiration(event)) is not None:
                resources = resources.with_times(resources.starttime, expiration)
        kill_timeout_s = parse_duration(kill_timeout)
    except (ClientError, TransportError, FluxError, FormatError) as error:
        raise EnclosingError(f"resources of job {name}: {error}") from None
    enclosing = Enclosing(uri, jobid, level, path, environ.get(FLUX_URI_VARIABLE, ""))
    return Allocation(enclosing, resources, len(events), kill_timeout_s)


async def _read_ours(
    environ: Mapping[str, str], jobid: int
) -> tuple[str, int, dict[str, str], str]:
    address = find_instance(environ)
    async with client.open_client(*address) as around:
        found = await around.call(topics.INFO_LOOKUP, {"id": jobid, "keys": list(KEYS)})
        level = int((await around.call(topics.BROKER_INFO))["level"]) + 1
        config = (await around.call(topics.CONFIG_GET, {"defaults": True}))["config"]
    return address.uri, level, found, config["exec"]["kill-timeout"]


async def write_address(
    environ: Mapping[str, str], allocation: Allocation, instance: Instance, statedir: str
) -> None:
    """Write the instance's address into the job's memo (`user.uri`, as in flux)."""
    uri = instance.native_uri or f"{LOCAL_SCHEME}{statedir}"
    note = {"id": allocation.enclosing.jobid, "memo": {"uri": uri}}
    try:
        if is_of_ours(environ):
            async with client.open_client(*find_instance(environ)) as around:
                await around.call(topics.JOB_MEMO, note)
        else:
            await tell_flux(environ, topics.JOB_MEMO, note)
    except (ClientError, TransportError, FluxError) as error:
        instance.write_log(Level.WARNING, "enclosing", f"job {environ[JOB_VARIABLE]}: {error}")


async def follow_expiration(
    environ: Mapping[str, str], allocation: Allocation, instance: Instance
) -> None:
    """Pass each new expiration of the job to `instance`, until the job is over.

    If the enclosing instance does not answer, it is asked again later: it may restart.
    """
    seen, wait_s = allocation.nevents, RETRY_S_MIN
    watch = _watch_ours if is_of_ours(environ) else watch_flux_job
    while True:
        try:
            async with watch(environ, allocation.enclosing.jobid) as lines:
                place, wait_s = 0, RETRY_S_MIN
                async for line in lines:
                    expiration = _new_expiration(parse_event(line["event"].removesuffix("\n")))
                    if place >= seen and expiration is not None:
                        await instance.set_expiration(expiration)
                    place += 1
                    seen = max(seen, place)
            return
        except (ClientError, TransportError, FluxError, FormatError) as error:
            text = f"time limit of job {environ[JOB_VARIABLE]} is not known: {error}"
            instance.write_log(Level.WARNING, "enclosing", text)
        await trio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_S_MAX)


@asynccontextmanager
async def _watch_ours(
    environ: Mapping[str, str], jobid: int
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    from flux_trio.client.jobs import watch_eventlog

    async with (
        client.open_client(*find_instance(environ)) as around,
        watch_eventlog(around, jobid) as responses,
    ):
        yield responses


def _new_expiration(event: Event) -> float | None:
    """Return the expiration of a resource-update event (RFC 21), None for another event."""
    if event.name != JobEvent.RESOURCE_UPDATE or event.context is None:
        return None
    expiration = event.context.get("expiration")
    return float(expiration) if isinstance(expiration, (int, float)) else None


def environment_inside(
    environ: Mapping[str, str], statedir: str, enclosing: Enclosing | None, native_uri: str = ""
) -> dict[str, str]:
    """Return the environment of the command: it names the new instance and its parent.

    Flux's own programs reach the instance at `native_uri`, "" if they may not come in.
    """
    inside = {name: value for name, value in environ.items() if name not in NOT_INHERITED}
    inside |= {STATEDIR_VARIABLE: statedir, INSIDE_VARIABLE: statedir}
    if native_uri:
        inside[FLUX_URI_VARIABLE] = native_uri
    if enclosing is not None:
        inside |= {PARENT_VARIABLE: enclosing.uri, ENCLOSING_VARIABLE: environ[JOB_VARIABLE]}
    return inside
