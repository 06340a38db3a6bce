"""Payloads about housekeeping, as flux-core has them, and what the job manager stores of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flux_trio.editions.codec import codec
from flux_trio.formats.meanings import JobId


class HousekeepingKill(msgspec.Struct, frozen=True):
    """The job-manager.housekeeping-kill request: of all jobs and ranks, or of those it names."""

    signum: int  # the signal
    jobid: JobId | None = None  # of the job that has ended; none: of any
    ranks: str | None = None  # an idset; none: all


class Running(msgspec.Struct, frozen=True):
    """The housekeeping of a job: ranks where it runs, and ranks that are not free yet."""

    t_start: float
    pending: str
    allocated: str


class Housekeeping(msgspec.Struct, frozen=True):
    """The part of job-manager.stats-get about housekeeping, by job id as F58."""

    running: dict[str, Running]


class KeptRun(msgspec.Struct, frozen=True):
    """What is stored of the housekeeping of a job; `R` is what is not `free` yet."""

    id: JobId
    userid: int
    priority: int
    t_submit: float
    t_start: float
    R: dict[str, Any]
    pending: str
    free: str


def write_kept(runs: Sequence[KeptRun]) -> str:
    """Return the text to store."""
    return msgspec.json.encode(runs).decode()


def read_kept(text: str | None) -> list[KeptRun]:
    """Return what is stored; nothing without a text. Raises msgspec.MsgspecError."""
    return [] if text is None else msgspec.json.decode(text, type=list[KeptRun])


KILL: Final = codec(HousekeepingKill)
