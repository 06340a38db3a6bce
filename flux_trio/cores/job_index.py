"""The index of jobs: the kvs keys by which services find active and finished jobs. Pure.

The key `active.<id>` exists from the commit that stores a job's submit event to the commit that
stores its clean event; its value is empty. From then on the key `ended.<time>.<id>` exists, until
the job is purged. These keys sort by the time at which the job became inactive: the oldest jobs are
on the first page, the newest on the last. An instance that starts reads the active jobs only; a
finished job costs it a row on disk.

The value of an `ended` key is [userid, result, name, queue], and for a guest's job the bytes that
are stored of it. Lists are filtered by it, so that a list reads only jobs that it may show. Name
and queue are marks: 32-bit numbers that are the same
for equal texts. Different texts may have the same mark, so a list compares the jobspec, too.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec

from flux_trio.editions.journal import Ended
from flux_trio.formats import format_fluid
from flux_trio.messages import USERID_UNKNOWN

ACTIVE: Final = "active"
ENDED: Final = "ended"

UNKNOWN: Final = 0
"""The mark of an unknown text, and an unknown result: it stands for any text or result."""

NAME_CHARS_MAX: Final = 1024  # of a job's name, as it is listed

_US: Final = 1_000_000
_USEC_MAX: Final = float(1 << 63)  # fits the 16 digits of a key


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    userid: int
    result: int
    name: int
    queue: int
    nbytes: int = 0


_VALUE: Final = msgspec.json.Decoder(_Value)
_DAMAGED: Final = _Value(USERID_UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)


def active_key(jobid: int) -> str:
    """Return the key that marks a job as active."""
    return f"{ACTIVE}.{jobid:016x}"


def ended_key(job: Ended) -> str:
    """Return the key that marks a job as finished."""
    return f"{ENDED}.{job.usec:016x}.{job.id:016x}"


def ended_value(job: Ended) -> str:
    """Return the value of `ended_key`."""
    nbytes = f",{job.nbytes}" if job.nbytes else ""
    return f"[{job.userid},{job.result},{job.name},{job.queue}{nbytes}]"


def jobid_in(key: str) -> int:
    """Return the job of an `active` or `ended` key."""
    return int(key[-16:], 16)


@lru_cache(maxsize=16)  # all jobs of a turn end at the same time
def ended_at(t_inactive: float) -> int:
    """Return `usec` of a job that became inactive at `t_inactive`, seconds since the Unix epoch.

    Users ask with times of any size: a time that no job can have becomes the first or the last
    that a job can have.
    """
    return round(min(max(0.0, t_inactive * _US), _USEC_MAX))


def read_ended(key: str, value: str | None) -> Ended:
    """Return the entry of a finished job; the value is None if it is damaged."""
    stored = _DAMAGED
    if value is not None:
        with suppress(msgspec.MsgspecError):  # a repair could not restore the value
            stored = _VALUE.decode(value)
    usec = int(key.split(".", 2)[1], 16)
    return Ended(
        jobid_in(key), usec, stored.userid, stored.result, stored.name, stored.queue, stored.nbytes
    )


def ended_ops(job: Ended) -> list[list[str]]:
    """Return the kvs ops that move a job from the active ones to the finished ones.

    It has no `ended` key yet, and to append is cheaper than to put.
    """
    return [["append", ended_key(job), ended_value(job)], ["unlink", active_key(job.id)]]


def submit_op(jobid: int) -> list[str]:
    """Return the op that is committed with a job's submit event."""
    return ["append", active_key(jobid), ""]


def refusal_ops(jobid: int) -> list[list[str]]:
    """Return the ops that remove a job that was refused."""
    return [["unlink", format_fluid(jobid, "kvs")], ["unlink", active_key(jobid)]]


def purge_ops(job: Ended) -> list[list[str]]:
    """Return the ops that remove everything that the kvs has of a finished job."""
    return [["unlink", format_fluid(job.id, "kvs")], ["unlink", ended_key(job)]]


# --- marks


@lru_cache(maxsize=256)  # an instance has a few queues
def mark_of(text: str | None) -> int:
    """Return the mark of a name or of a queue; None is the anonymous queue."""
    return zlib.crc32((text or "").encode("utf-8", "surrogatepass")) or 1


class _System(msgspec.Struct, frozen=True):
    job: Any = None


class _Attributes(msgspec.Struct, frozen=True):
    system: _System = _System()


class _Task(msgspec.Struct, frozen=True):
    command: list[str]


class _Jobspec(msgspec.Struct, frozen=True):
    tasks: list[_Task]
    attributes: _Attributes = _Attributes()


def name_of(named: Any, command: str) -> str:
    """Return a job's name, cut: `attributes.system.job.name`, or the last part of its command."""
    if isinstance(named, str):
        return cut_name(named)
    return cut_name(command.rpartition("/")[2] or command)


def cut_name(name: str) -> str:
    """Return as much of a name as a list shows."""
    return name[:NAME_CHARS_MAX]


def name_mark(jobspec: bytes) -> int:
    try:
        spec = msgspec.json.decode(jobspec, type=_Jobspec)
        command = spec.tasks[0].command[0]
    except (msgspec.MsgspecError, IndexError):
        return UNKNOWN  # lists show no name for it
    job = spec.attributes.system.job
    return mark_of(name_of(job.get("name") if isinstance(job, dict) else None, command))
