"""Grants: R is committed, and SUCCESS is sent when R is durable (27.success.1).

All grants of a turn are one commit. If a grant is revoked before SUCCESS is sent, R is removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from flux_trio.cores.kvs_calls import commit_values
from flux_trio.cores.sched.annotations import Outlook
from flux_trio.cores.sched.context import Context, GrantNumber, GrantsStored
from flux_trio.cores.state import Part
from flux_trio.formats import ResourceSet, format_r, job_key
from flux_trio.formats.meanings import JobId, KvsOp, Last
from flux_trio.messages import Response
from flux_trio.policies import Grant, Job

SHORTEST_S: Final = 1e-6
"""R of a job with an end is valid for at least that time: its times have no finer step."""


class Granting(msgspec.Struct, frozen=True, eq=False):
    """A grant whose R may not be durable yet."""

    number: GrantNumber
    """Tells this grant from a later one: a job whose grant is revoked may get another."""
    job: Job
    grant: Grant
    resources: ResourceSet
    outdated: Outlook
    """The annotations of the job from when it waited."""


class Grantings(Part):
    """The grants whose R is being written, by job id."""

    _by_id: dict[JobId, Granting]
    _last_number: Last
    _granted: list[tuple[JobId, GrantNumber]]
    _ops: list[KvsOp]

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_id = {}
        self._last_number = 0
        self._granted = []  # job ids and numbers of grants of this turn
        self._ops = []  # ops of this turn

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Granting]:
        return iter(list(self._by_id.values()))

    def get(self, jobid: int) -> Granting | None:
        return self._by_id.get(jobid)

    def grant(self, job: Job, grant: Grant, outdated: Outlook) -> None:
        """Write R of `grant`; `outdated` are the annotations of the job from when it waited."""
        pool = self._context.schedule.state.pool
        properties = pool.inventory.properties if pool.inventory else {}
        if not self._context.edition.grants_local_properties:
            properties = {name: ids for name, ids in properties.items() if name[0] != "+"}
        starttime = _microseconds(self._context.now)
        expiration = grant.end if grant.end < math.inf else 0.0
        if expiration:
            expiration = _microseconds(max(expiration, starttime + SHORTEST_S))
        resources = grant.allocation.resource_set(pool.hosts, properties, starttime, expiration)
        self._ops.append(["put", job_key(job.id, "R"), format_r(resources)])
        self._last_number += 1
        granting = Granting(self._last_number, job, grant, resources, outdated)
        self._by_id[job.id] = granting
        self._granted.append((job.id, self._last_number))

    def revoke(self, one: Granting) -> Job:
        """Take back a grant before SUCCESS; the job then neither waits nor holds resources."""
        del self._by_id[one.job.id]
        self._context.schedule.free(one.job.id)
        self._ops.append(["unlink", job_key(one.job.id, "R")])
        return one.job

    def forget_all(self) -> None:
        """Forget the grants: the job manager that requested them is gone."""
        self._by_id.clear()

    def commit(self) -> None:
        """Commit R of the turn's grants, and remove R of grants that were revoked."""
        if not self._ops:
            return
        ops, self._ops = self._ops, []
        granted, self._granted = tuple(self._granted), []
        self._context.ask_kvs(commit_values(ops), GrantsStored(granted))

    def stored(self, call: GrantsStored, response: Response) -> list[Granting]:
        """Return the grants that are durable now and were not revoked meanwhile."""
        if response.errnum:
            self._context.give_up(f"{response.topic}: {response.error_text}")
            return []
        durable = []
        for jobid, number in call.grants:
            one = self._by_id.get(jobid)
            if one is not None and one.number == number:
                del self._by_id[jobid]
                durable.append(one)
        return durable


def _microseconds(time: float) -> float:
    """Return a time as RFC 20 has it: seconds with at most six decimals (20.starttime.3)."""
    return round(time, 6)
