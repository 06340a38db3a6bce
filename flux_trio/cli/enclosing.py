"""The job that `flux-trio start` runs in, if it does: its R is the new instance's inventory.

RFC 20: an instance has its resources from the enclosing one, re-ranked. When the job gets a new
expiration, so does the instance: it watches the job's eventlog (readings: How exec learns of
cancels). Left out: more than one broker; of the tasks of a job the first is the instance, with all
that the job has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import trio

from flux_trio.client import (
    LOCAL_SCHEME,
    STATEDIR_VARIABLE,
    TOKEN_VARIABLE,
    URI_VARIABLE,
    ClientError,
    find_instance,
    open_client,
)
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

JOB_VARIABLE: Final = "FLUX_JOB_ID"
TASK_VARIABLE: Final = "FLUX_TASK_RANK"
RETRY_S_MIN: Final = 1.0  # an enclosing instance that is restarted is back in seconds
RETRY_S_MAX: Final = 60.0
ENCLOSING_VARIABLE: Final = "FLUX_ENCLOSING_ID"
PARENT_VARIABLE: Final = "FLUX_TRIO_PARENT_URI"
# What says where the enclosing instance is and which of its jobs this is: the new one's commands
# and jobs are not of that job.
NOT_INHERITED: Final = (
    URI_VARIABLE,
    TOKEN_VARIABLE,
    STATEDIR_VARIABLE,
    JOB_VARIABLE,
    TASK_VARIABLE,
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_TRIO_RANK",
    "FLUX_TRIO_HOST",
)


class EnclosingError(Exception):
    """The job's resources cannot be read; the text says why."""


@dataclass(frozen=True)
class Allocation:
    """What the job has: its instance, and R as it is after the first `nevents` of the eventlog.

    When the job is to end it has `kill_timeout_s` from SIGTERM to SIGKILL.
    """

    enclosing: Enclosing
    resources: ResourceSet
    nevents: int
    kill_timeout_s: float


def is_in_job(environ: Mapping[str, str]) -> bool:
    """Whether this process is a task of a job of ours; real Flux has no such variables."""
    ours = STATEDIR_VARIABLE in environ or URI_VARIABLE in environ
    return JOB_VARIABLE in environ and ours


def is_further_task(environ: Mapping[str, str]) -> bool:
    """Whether it is another task than the first, which is the instance."""
    return is_in_job(environ) and environ.get(TASK_VARIABLE, "0") != "0"


async def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """What the job has that this process is a task of; None outside. Raises EnclosingError."""
    if not is_in_job(environ):
        return None
    name = environ[JOB_VARIABLE]
    try:
        jobid = parse_fluid(name)
        address = find_instance(environ)
        async with open_client(*address) as client:
            wanted = {"id": jobid, "keys": ["R", "eventlog"]}
            found = await client.call(topics.INFO_LOOKUP, wanted)
            level = int((await client.call(topics.BROKER_INFO))["level"]) + 1
            config = (await client.call(topics.CONFIG_GET))["config"]
        resources = ResourceSet.parse(found["R"].encode(), "R")
        events = parse_eventlog(found["eventlog"])
        for event in events:
            if (expiration := _new_expiration(event)) is not None:
                resources = resources.with_times(resources.starttime, expiration)
    except (ClientError, FluxError, FormatError) as error:
        raise EnclosingError(f"resources of job {name}: {error}") from None
    kill_timeout_s = parse_duration(config["exec"]["kill-timeout"])
    return Allocation(Enclosing(address.uri, jobid, level), resources, len(events), kill_timeout_s)


async def tell_address(
    environ: Mapping[str, str], allocation: Allocation, instance: Instance, statedir: str
) -> None:
    """Note on the job where its instance is (`user.uri`, as in flux), so that others find it."""
    note = {"id": allocation.enclosing.jobid, "memo": {"uri": f"{LOCAL_SCHEME}{statedir}"}}
    try:
        async with open_client(*find_instance(environ)) as client:
            await client.call(topics.JOB_MEMO, note)
    except (ClientError, FluxError) as error:
        instance.write_log(Level.WARNING, "enclosing", f"job {environ[JOB_VARIABLE]}: {error}")


async def follow_expiration(
    environ: Mapping[str, str], allocation: Allocation, instance: Instance
) -> None:
    """Tell `instance` of each new expiration of its job until the job is over.

    An enclosing instance that is away is asked again later: it may have been restarted.
    """
    seen, wait_s = allocation.nevents, RETRY_S_MIN
    wanted = {"id": allocation.enclosing.jobid}
    while True:
        try:
            async with (
                open_client(*find_instance(environ)) as client,
                client.stream(
                    topics.INFO_WATCH, wanted, cancel_topic=topics.INFO_WATCH_CANCEL, credit=True
                ) as responses,
            ):
                place, wait_s = 0, RETRY_S_MIN
                async for response in responses:
                    expiration = _new_expiration(parse_event(response["event"]))
                    if place >= seen and expiration is not None:
                        await instance.set_expiration(expiration)
                    place += 1
                    seen = max(seen, place)
            return
        except (ClientError, FluxError, FormatError) as error:
            text = f"time limit of job {environ[JOB_VARIABLE]} is not known: {error}"
            instance.write_log(Level.WARNING, "enclosing", text)
        await trio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_S_MAX)


def _new_expiration(event: Event) -> float | None:
    """What a resource-update says (RFC 21), None for another event."""
    if event.name != JobEvent.RESOURCE_UPDATE or event.context is None:
        return None
    expiration = event.context.get("expiration")
    return float(expiration) if isinstance(expiration, (int, float)) else None


def environment_inside(
    environ: Mapping[str, str], statedir: str, enclosing: Enclosing | None
) -> dict[str, str]:
    """The environment of a command of the new instance: it finds that one, and its parent."""
    inside = {name: value for name, value in environ.items() if name not in NOT_INHERITED}
    inside[STATEDIR_VARIABLE] = statedir
    if enclosing is not None:
        inside |= {PARENT_VARIABLE: enclosing.uri, ENCLOSING_VARIABLE: environ[JOB_VARIABLE]}
    return inside
