"""From a decision to SUCCESS: R is written, and when it is durable the job is told (27.success.1).

All grants of a turn are one commit. One that is revoked before it is told leaves no R behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from flux_trio.cores.sched.context import Context
from flux_trio.formats import format_r, job_key
from flux_trio.messages import Response, topics
from flux_trio.policies import Grant, Job, Schedule


@dataclass(slots=True, eq=False)
class Granting:
    """A grant whose R is not known to be durable yet."""

    job: Job
    grant: Grant
    annotations: dict[str, Any]
    """The `sched` keys for SUCCESS."""


class Grantings:
    """Grants on their way. `on_success` is called for each that has arrived."""

    def __init__(
        self, context: Context, schedule: Schedule, on_success: Callable[[Granting], None]
    ) -> None:
        self._context = context
        self._schedule = schedule
        self._on_success = on_success
        self._by_id: dict[int, Granting] = {}
        self._granted: list[Granting] = []  # by this turn
        self._ops: list[list[str]] = []  # what this turn writes

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Granting]:
        return iter(list(self._by_id.values()))

    def get(self, jobid: int) -> Granting | None:
        """The one of job `jobid`, if there is one."""
        return self._by_id.get(jobid)

    def grant(self, job: Job, grant: Grant, outdated: dict[str, Any]) -> None:
        """Write R of `grant`; `outdated` are annotations to remove, with null."""
        pool = self._schedule.state.pool
        properties = pool.inventory.properties if pool.inventory else {}
        expiration = grant.end if grant.end < math.inf else 0.0
        resources = grant.allocation.resource_set(
            pool.hosts, properties, self._context.now, expiration
        )
        self._ops.append(["put", job_key(job.id, "R"), format_r(resources)])
        one = Granting(job, grant, {**outdated, "resource_summary": resources.summary()})
        self._by_id[job.id] = one
        self._granted.append(one)

    def revoke(self, one: Granting) -> Job:
        """Take back a grant that nobody was told of; its job neither waits nor holds anything."""
        del self._by_id[one.job.id]
        self._schedule.free(one.job.id)
        self._ops.append(["unlink", job_key(one.job.id, "R")])
        return one.job

    def forget_all(self) -> None:
        """Nobody is to be told of anything."""
        self._by_id.clear()

    def commit(self) -> None:
        """Write what the turn granted and revoked."""
        if not self._ops:
            return
        ops, self._ops = self._ops, []
        granted, self._granted = self._granted, []
        self._context.ask(topics.KVS_COMMIT, {"ops": ops}, partial(self._committed, granted))

    def _committed(self, granted: list[Granting], response: Response) -> None:
        if response.errnum:
            self._context.give_up(f"{response.topic}: {response.error_text}")
            return
        for one in granted:
            if self._by_id.get(one.job.id) is one:  # otherwise it was revoked meanwhile
                del self._by_id[one.job.id]
                self._on_success(one)
