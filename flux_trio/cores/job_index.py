"""Which jobs there are: the kvs keys by which active and finished jobs are found. Pure.

`active.<id>` is there from the commit that stores a job's submit event to the one that stores its
clean event; its value is empty. From then on `ended.<time>.<id>` is there instead, until the job
is purged. These keys sort by the time the job became inactive, so that the newest jobs are the last
page and the oldest the first. An instance that starts reads the active jobs alone; finished jobs
cost it nothing but a row on disk.

The value of an `ended` key is what lists are filtered by, so that a list reads no job that it does
not show: [userid, result, name, queue]. Name and queue are marks, 32-bit numbers that equal texts
have in common. They only sort out: a job whose mark fits is still compared by its jobspec.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from flux_trio.editions.journal import Ended
from flux_trio.formats import format_fluid
from flux_trio.messages import USERID_UNKNOWN

ACTIVE: Final = "active"
ENDED: Final = "ended"

UNKNOWN: Final = 0
"""The mark of a text that is not known, and the result that is not: it may be any."""

NAME_CHARS_MAX: Final = 1024  # of a job's name, as it is listed

_US: Final = 1_000_000
_USEC_MAX: Final = float(1 << 63)  # fits the 16 digits of a key


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    userid: int
    result: int
    name: int
    queue: int


_VALUE: Final = msgspec.json.Decoder(_Value)
_DAMAGED: Final = _Value(USERID_UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)


def active_key(jobid: int) -> str:
    """The key that says that a job is active."""
    return f"{ACTIVE}.{jobid:016x}"


def ended_key(job: Ended) -> str:
    """The key that says that a job is finished."""
    return f"{ENDED}.{job.usec:016x}.{job.id:016x}"


def ended_value(job: Ended) -> str:
    """What the kvs keeps of a finished job in the index."""
    return f"[{job.userid},{job.result},{job.name},{job.queue}]"


def jobid_in(key: str) -> int:
    """The job that an `active` or `ended` key is about."""
    return int(key[-16:], 16)


def ended_at(t_inactive: float) -> int:
    """`usec` of a job that became inactive then, seconds since the Unix epoch.

    Users ask with times of any size: one that no job can have is the first or last possible.
    """
    return round(min(max(0.0, t_inactive * _US), _USEC_MAX))


def read_ended(key: str, value: str | None) -> Ended:
    """What the kvs keeps of one finished job; None is a value that is damaged."""
    told = _DAMAGED
    if value is not None:
        with suppress(msgspec.MsgspecError):  # what a repair could not find again
            told = _VALUE.decode(value)
    usec = int(key.split(".", 2)[1], 16)
    return Ended(jobid_in(key), usec, told.userid, told.result, told.name, told.queue)


def ended_ops(jobs: Iterable[Ended]) -> list[list[str]]:
    """The kvs ops by which active jobs become finished ones."""
    jobs = list(jobs)
    puts = [["put", ended_key(job), ended_value(job)] for job in jobs]
    return puts + [["unlink", active_key(job.id)] for job in jobs]


def submit_op(jobid: int) -> list[str]:
    """The op that goes with a job's submit event."""
    return ["append", active_key(jobid), ""]


def refusal_ops(jobid: int) -> list[list[str]]:
    """The ops by which a job that was refused never was."""
    return [["unlink", format_fluid(jobid, "kvs")], ["unlink", active_key(jobid)]]


def purge_ops(job: Ended) -> list[list[str]]:
    """The ops that take away all that the kvs keeps of a finished job."""
    return [["unlink", format_fluid(job.id, "kvs")], ["unlink", ended_key(job)]]


# --- marks


def mark_of(text: str | None) -> int:
    """The mark of a name, or of a queue; None is the anonymous queue."""
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
    """A job's name: `attributes.system.job.name`, or the last part of its command; cut."""
    if isinstance(named, str):
        return cut_name(named)
    return cut_name(command.rpartition("/")[2] or command)


def cut_name(name: str) -> str:
    """The beginning of a name that is too long to be listed."""
    return name[:NAME_CHARS_MAX]


def name_mark(jobspec: bytes) -> int:
    try:
        spec = msgspec.json.decode(jobspec, type=_Jobspec)
        command = spec.tasks[0].command[0]
    except (msgspec.MsgspecError, IndexError):
        return UNKNOWN  # as no name is listed of it
    job = spec.attributes.system.job
    return mark_of(name_of(job.get("name") if isinstance(job, dict) else None, command))
