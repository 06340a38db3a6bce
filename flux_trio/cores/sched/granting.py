"""From a decision to SUCCESS: R is written, and when it is durable the job is told (27.success.1).

All grants of a turn are one commit. A grant that is revoked before its job is told leaves no R.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from flux_trio.cores.kvs_calls import commit_ops
from flux_trio.cores.sched.annotations import Told
from flux_trio.cores.sched.context import Context, GrantNumber, GrantsStored
from flux_trio.cores.state import Part
from flux_trio.formats import ResourceSet, format_r, job_key
from flux_trio.formats.meanings import JobId, KvsOp, Last
from flux_trio.messages import Response
from flux_trio.policies import Grant, Job


@dataclass(slots=True, eq=False)
class Granting:
    """A grant whose R is not known to be durable yet."""

    number: GrantNumber
    """A job whose grant is revoked may get another one; the number tells the two apart."""
    job: Job
    grant: Grant
    resources: ResourceSet
    outdated: Told
    """What was told while the job waited."""


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
        self._granted = []  # in this turn: job ids and numbers
        self._ops = []  # what this turn writes

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Granting]:
        return iter(list(self._by_id.values()))

    def get(self, jobid: int) -> Granting | None:
        """The grant of job `jobid`; None when it has none on its way."""
        return self._by_id.get(jobid)

    def grant(self, job: Job, grant: Grant, outdated: Told) -> None:
        """Write R of `grant`; `outdated` was told of the job while it waited."""
        pool = self._context.schedule.state.pool
        properties = pool.inventory.properties if pool.inventory else {}
        expiration = grant.end if grant.end < math.inf else 0.0
        resources = grant.allocation.resource_set(
            pool.hosts, properties, self._context.now, expiration
        )
        self._ops.append(["put", job_key(job.id, "R"), format_r(resources)])
        self._last_number += 1
        granting = Granting(self._last_number, job, grant, resources, outdated)
        self._by_id[job.id] = granting
        self._granted.append((job.id, self._last_number))

    def revoke(self, one: Granting) -> Job:
        """Take back a grant whose job was not told; the job neither waits nor holds anything."""
        del self._by_id[one.job.id]
        self._context.schedule.free(one.job.id)
        self._ops.append(["unlink", job_key(one.job.id, "R")])
        return one.job

    def forget_all(self) -> None:
        """Tell no job of its grant: the job manager that asked for them is gone."""
        self._by_id.clear()

    def commit(self) -> None:
        """Write R of the turn's grants, and remove R of those it revoked."""
        if not self._ops:
            return
        ops, self._ops = self._ops, []
        granted, self._granted = tuple(self._granted), []
        self._context.ask(*commit_ops(ops), GrantsStored(granted))

    def stored(self, call: GrantsStored, response: Response) -> list[Granting]:
        """The grants that are durable now, and were not revoked meanwhile."""
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
