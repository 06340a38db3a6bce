"""What became of a plan that was played, and which properties are broken at rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from flux_trio.broker import LogEntry
from flux_trio.formats import EVENTLOG, format_fluid, job_key
from flux_trio.judge import Violation
from flux_trio.lab.catalogue import Fault
from flux_trio.lab.plans.never_struck import never_struck
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JOB_ACTIONS, JobPlan, OwnerRequest
from flux_trio.lab.stories.owner import Owner
from flux_trio.lab.world.jobs import stored_job
from flux_trio.protocols import Job
from flux_trio.store.stores import Store
from flux_trio.trace import Record

ERROR: Final = "error"
"""The name of the property that no core raises an exception."""


@dataclass(frozen=True)
class Outcome:
    """What became of a plan that was played.

    `problems` says of each property that was broken how it was, one line each; it is empty if all
    held. `excused` has what the faults of the plan excuse: the clauses that a lying module broke,
    and everything but errors of cores if the transport or the disk broke its promise. The `trace`
    has all records.
    """

    plan: Plan
    problems: tuple[str, ...]
    violations: tuple[Violation, ...] = ()
    struck: tuple[Fault, ...] = ()
    nsteps: int = 0
    log: tuple[LogEntry, ...] = field(default=(), repr=False)
    excused: tuple[str, ...] = ()
    unprompted: tuple[OwnerRequest, ...] = ()
    """The requests of the plan that were never made, since their message did not come."""
    trace: Sequence[Record] = field(default=(), repr=False)

    @property
    def never_struck(self) -> tuple[Fault, ...]:
        """The faults of the plan that never struck: what they wait for, such as a message, never
        came.
        """
        return never_struck(self.plan.faults, self.struck)

    @property
    def broken(self) -> frozenset[str]:
        """The names of the properties in `problems`; those of clauses are their ids."""
        return frozenset(map(property_of, self.problems))


def property_of(problem: str) -> str:
    """Return the name of the property that is broken, the first word of `problem`."""
    return problem.partition(":")[0]


def problems_at_rest(
    owner: Owner, active: Iterable[int], may_wait: Collection[int], store: Store
) -> Iterator[str]:
    """Yield how a world at rest breaks `inactive`, `read` and `answered`.

    `active` are the jobs that are not over, and `may_wait` those of them that may be so: a plugin
    holds them. Only jobs of the `owner`, and the owner's requests, are looked at.
    """
    for jobid in active:
        if jobid in owner.ids.values() and jobid not in may_wait:
            yield f"inactive: {format_fluid(jobid, 'f58')} {_still(stored_job(jobid, store))}"
    for jobid, eventlog in owner.read.items():
        (stored,) = store.lookup([job_key(jobid, EVENTLOG)])
        if stored not in (eventlog, None):  # None: it was purged
            name = format_fluid(jobid, "f58")
            yield f"read: {name} has the eventlog {stored!r}, told was {eventlog!r}"
    for asked in owner.unanswered:
        if not _may_wait_for_job(asked, owner, may_wait):
            yield f"answered: the owner's {_called(asked)} has no answer"


def _may_wait_for_job(
    asked: JobPlan | OwnerRequest, owner: Owner, may_wait: Collection[int]
) -> bool:
    """Whether a request waits for the end of a job that may wait for ever itself."""
    if isinstance(asked, JobPlan):
        return False
    if asked.what in ("queue-drain", "queue-idle"):
        return bool(may_wait)
    return asked.what == "watch" and owner.ids[asked.job] in may_wait


def _called(asked: JobPlan | OwnerRequest) -> str:
    if isinstance(asked, JobPlan):
        return f"submission at {asked.at:g} s"
    about = f" of job {asked.job}" if asked.what in JOB_ACTIONS else ""
    return f"{asked.what}{about}"


def _still(job: Job | None) -> str:
    if job is None:
        return "has no eventlog that can be read, and is not over at rest"
    waits = ", ".join(sorted(job.dependencies or ()))
    text = f"is in {job.state.name} at rest"
    return f"{text}, and waits for {waits}" if waits else text
