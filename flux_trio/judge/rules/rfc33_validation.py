"""RFC 33: which jobs a queue accepts, by the configuration in the trace.

Judged when the job manager accepts or refuses a job. Users and groups have names in the
configuration and numbers in the trace, so that of the access policy a queue is judged that nobody
may use, one that takes jobs of more users than it names, and jobs of userid 0, whose name is known.
Left out: a job while a new configuration is on its way to the job manager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from flux_trio.judge.checks.jobspecs import system, totals
from flux_trio.judge.checks.queue_tables import ANONYMOUS, NO_LIMITS, Tables
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, name_of, while_live
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.jobs import LIFE, Life
from flux_trio.judge.views.queueing import UNSENT, unsent
from flux_trio.judge.views.queues import (
    CONFIGURED,
    DISABLED,
    QUEUE,
    disabled_at,
    queue_of,
    queue_of_job,
    tables_of,
)
from flux_trio.judge.views.submitted import SUBMITTED, original_of, updated, updates_of
from flux_trio.trace import Record

RULES: Final = Rules()

DECIDED: Final = logged("validate", "invalidate")


class Decided(NamedTuple):
    """A job that the job manager has accepted or refused, with the configuration at that time."""

    jobid: int | None
    accepted: bool
    named: str
    """The queue that the submitted jobspec names; "" if it names none."""
    assigned: str
    """The queue that the job was first put into; "" if it was put into none."""
    jobspec: dict[str, Any]
    """The jobspec with its updates."""
    n: int
    """The record of the configuration."""
    tables: Tables

    @property
    def queue(self) -> str:
        """The queue of the job, or the queue that it would have been put into."""
        return queue_of(self.jobspec) or self.tables.default


def _decided(record: Record, seen: Seen) -> Iterable[Decided]:
    found, original = tables_of(seen), original_of(seen, job_id(record))
    if found is None or original is None:
        return
    n, tables = found
    updates = updates_of(seen, job_id(record))
    jobspec = updated(original, updates)
    if jobspec is None:
        return
    assigned = next((str(each.value) for each in updates if each.path == QUEUE), ANONYMOUS)
    accepted = name_of(record) == "validate"
    yield Decided(job_id(record), accepted, queue_of(original), assigned, jobspec, n, tables)


@RULES.each("33.assignment.2", DECIDED, of=_decided, views=(CONFIGURED, *SUBMITTED))
def without_a_queue_it_gets_the_default(job: Decided) -> Finding:
    default = job.tables.default
    if not job.accepted or job.named or not default:
        return None
    if job.assigned == default:
        return True
    got = job.assigned or "no jobspec-update event that does so"
    text = f"names no queue: expected it to be assigned the default, {default}; got {got}"
    return Broken(f"job {job.jobid}: {text}", (job.n,))


def _refused(clause: str, problem: Callable[[Decided], str]) -> None:
    """`clause`: a job with the problem (a text, "" for none) is refused."""

    @RULES.each(clause, DECIDED, of=_decided, views=(CONFIGURED, *SUBMITTED))
    def check(job: Decided) -> Finding:
        text = problem(job)
        if not text:
            return None
        if not job.accepted:
            return True
        return Broken(f"job {job.jobid}: {text}: expected it to be refused", (job.n,))


def _no_such_queue(job: Decided) -> str:
    if job.queue == ANONYMOUS or job.queue in job.tables.names:
        return ""
    return f"names queue {job.queue}, there is {', '.join(job.tables.names) or 'the anonymous one'}"


def _beyond_limits(job: Decided) -> str:
    """Of nodes only what the jobspec says: how many its slots need is the scheduler's to find."""
    limits = job.tables.limits(job.queue)
    if limits == NO_LIMITS:
        return ""
    total = totals(job.jobspec)
    for kind, most in zip(("node", "core", "gpu"), limits.most, strict=True):
        if total[kind] > most:
            return f"asks for {total[kind]} of at most {most:g} {kind}s"
    if 0 < total["node"] < limits.nnodes_min:
        return f"asks for {total['node']} of at least {limits.nnodes_min:g} nodes"
    return _too_long(job, limits.duration)


def _too_long(job: Decided, limit: float) -> str:
    duration = system(job.jobspec).get("duration", 0)
    if not math.isfinite(limit) or type(duration) not in (int, float):
        return ""
    if 0 < duration <= limit:
        return ""
    asked = f"{duration:g} s" if duration else "no end"
    return f"asks for {asked}, and the limit is {limit:g} s"


_refused("33.validation.1", _no_such_queue)
_refused("33.validation.2", _beyond_limits)


# --- users


class Admitted(NamedTuple):
    """The users whose jobs a queue has taken under a configuration, in the order of userids."""

    configured: Place
    userids: tuple[int, ...] = ()


def _admitted(record: Record, seen: Seen) -> Iterable[tuple[str, tuple[int, int]]]:
    life: Life | None = seen.at(LIFE, job_id(record))
    if life is not None and life.userid >= 0:
        for job in _decided(record, seen):
            if job.tables.users(job.queue) is not None:
                yield job.queue, (job.n, life.userid)


def _fold_admitted(
    had: Admitted | None, part: tuple[int, int], _record: Record, _seen: Seen
) -> Admitted:
    n, userid = part
    if had is None or had.configured != n:
        had = Admitted(n)
    return Admitted(n, tuple(sorted({*had.userids, userid})))


ADMITTED: Final = view(
    "admitted",
    logged("validate"),
    parts=_admitted,
    fold=_fold_admitted,
    reads=(CONFIGURED, *SUBMITTED, LIFE),
)
"""By queue that only some users may use: the `Admitted`."""


@RULES.judge("33.validation.3", DECIDED, views=(ADMITTED, CONFIGURED, LIFE, *SUBMITTED))
def only_its_users_may_use_a_queue(record: Record, seen: Seen) -> Finding:
    for job in _decided(record, seen):
        problem = _no_user(record, job, seen)
        if problem and job.accepted:
            what = f"job {job.jobid}: queue {job.queue or '(anonymous)'} {problem}"
            return Broken(f"{what}: expected it to be refused", (job.n,))
        if problem:
            return True
    return None


def _no_user(record: Record, job: Decided, seen: Seen) -> str:
    """Return why its user may not use the queue, where the trace can tell; "" otherwise."""
    if job.tables.is_closed(job.queue):
        return "lists nobody who may use it"
    names, life = job.tables.users(job.queue), seen.at(LIFE, job_id(record))
    if names is None or life is None or life.userid < 0:
        return ""
    if life.userid == 0 and "root" not in names:
        return f"is for {', '.join(map(str, names))}, and not for userid 0"
    had: Admitted | None = seen.at(ADMITTED, job.queue)
    before = had.userids if had is not None and had.configured == job.n else ()
    if len({*before, life.userid}) <= len(names) or not job.accepted:
        return ""
    users = ", ".join(map(str, (*before, life.userid)))
    return f"is for {len(names)} users, and has taken jobs of userids {users}"


# --- queues that are disabled


def _not_scheduled(seen: Seen) -> Iterable[Broken]:
    for jobid, since in unsent(seen):
        disabled = disabled_at(seen, queue_of_job(seen, jobid))
        if disabled:
            text = "its queue is disabled, which is no reason not to ask for its resources"
            yield Broken(f"job {jobid}: {text}", (since, disabled), job=jobid)


@RULES.judge(
    "33.admin.3",
    while_live(DISABLED, DECIDED),
    views=(DISABLED, CONFIGURED, LIFE, *SUBMITTED, *UNSENT),
    debts=_not_scheduled,
)
def a_disabled_queue_takes_no_jobs(record: Record, seen: Seen) -> Finding:
    life: Life | None = seen.at(LIFE, job_id(record))
    queue = _queue_asked_for(record, seen)
    disabled = 0 if queue is None else disabled_at(seen, queue)
    if not disabled:
        return None
    if name_of(record) != "validate":
        return True
    if life is None or life.since < disabled:
        return None  # it had been submitted before
    text = f"submitted when queue {queue or '(anonymous)'} was disabled"
    return Broken(f"job {job_id(record)}: {text}: expected it to be refused", (disabled,))


def _queue_asked_for(record: Record, seen: Seen) -> str | None:
    """Return the queue that a job is to be in, also without a configuration; None if unsure."""
    original, found = original_of(seen, job_id(record)), tables_of(seen)
    if original is None or (found is None and seen.at(CONFIGURED) is not None):
        return None
    jobspec = updated(original, updates_of(seen, job_id(record)))
    default = ANONYMOUS if found is None else found[1].default
    return None if jobspec is None else queue_of(jobspec) or default
