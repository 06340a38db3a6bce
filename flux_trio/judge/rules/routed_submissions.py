"""What was submitted, in the trace of a router, which shows job-manager.submit and no commits.

The submit event has the submission's urgency, userid and flags; the scheduler and the execution
service get its jobspec, with its updates and perhaps without the environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from flux_trio.judge.checks.jobspecs import without_environment
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    errnum,
    job_id,
    logged,
    name_of,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.calls import client_of
from flux_trio.judge.views.commits import decoded, encoded
from flux_trio.judge.views.jobs import LIFE, NEW, Life, context_of, submitted
from flux_trio.judge.views.submitted import ENDS, UPDATES, Update, updated, updates_of
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

RULES: Final = Rules(routed=True)

_KEYS: Final = ("urgency", "userid", "flags")


class Submission(NamedTuple):
    """A job as it was submitted, and its submit event; either may come first."""

    n: Place
    submitted: tuple[tuple[str, str], ...] | None = None
    """The urgency, userid and flags of the request in JSON, as far as it has them."""
    logged: tuple[tuple[str, str], ...] | None = None
    """The urgency, userid and flags in the submit event, in JSON."""
    jobspec: str = ""


def _jobs(record: Record) -> list[tuple[int, Any]]:
    return [(job["id"], job) for job in submitted(record)]


def _values(found: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key, encoded(found[key])) for key in _KEYS if key in found)


def _fold(was: Submission | None, job: Any, record: Record, _seen: Seen) -> Submission | None:
    was = was or Submission(record.n)
    if job is not None:
        return was._replace(submitted=_values(job), jobspec=encoded(job.get("jobspec")))
    is_submit = name_of(record) == "submit"
    return was._replace(logged=_values(context_of(record))) if is_submit else None


SUBMISSIONS: Final = view(
    "submissions",
    logged("submit", *ENDS),
    key=job_id,
    parts=lambda record, _seen: _jobs(record),
    many=received("request", topics.JOB_SUBMIT),
    fold=_fold,
)
"""The `Submission` of each active job, by job id."""


def _require_same(clause: str, key: str) -> None:
    """Register `clause`: the submit event has the value that the submission has."""

    @RULES.judge(
        clause, logged("submit"), received("request", topics.JOB_SUBMIT), views=[SUBMISSIONS]
    )
    def judge(record: Record, seen: Seen) -> Finding:
        kept = None
        jobs = _jobs(record) if record.message is not None else [(job_id(record), None)]
        for jobid, job in jobs:
            known: Submission | None = seen.at(SUBMISSIONS, jobid)
            other = None if known is None else known.submitted if job is None else known.logged
            if known is None or other is None:
                continue
            here = _values(context_of(record) if job is None else job)
            values = [dict(each).get(key, "nothing") for each in (here, other)]
            if values[0] != values[1]:
                text = f"{key} of the submission and of the submit event: {' and '.join(values)}"
                return Broken(f"job {jobid}: {text}", (known.n,))
            kept = True
        return kept


_require_same("21.events.4", "urgency")
_require_same("21.events.5", "userid")
_require_same("21.events.6", "flags")


# --- what is refused


def _fold_open(
    open_: tuple[tuple[int, ...], ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[tuple[int, ...], ...] | None:
    if isinstance(record.message, Request):
        return (*(open_ or ()), tuple(jobid for jobid, _ in _jobs(record)))
    return (open_ or ())[1:] or None


OPEN: Final = view(
    "open submissions",
    received("request", topics.JOB_SUBMIT),
    sent("response", topics.JOB_SUBMIT),
    key=client_of,
    fold=_fold_open,
)
"""By client: the job ids of each request to submit that was not answered, in the order of the
requests."""


@RULES.judge("33.validation.4", sent("response", topics.JOB_SUBMIT), views=[OPEN, LIFE])
def what_is_refused_is_not_active(record: Record, seen: Seen) -> Finding:
    open_ = seen.at(OPEN, client_of(record))
    if not errnum(record) or not open_:
        return None
    for jobid in open_[0]:
        life: Life | None = seen.at(LIFE, jobid)
        if life is not None and life.state != NEW:
            text = f"job {jobid} is in {life.state}, but its submission is refused"
            return Broken(f"{text}: error {errnum(record)}", (life.since,), job=jobid)
    return True


# --- the jobspec


def _updated(original: Any, updates: Iterable[Update]) -> Any:
    return updated(original, updates) if isinstance(original, dict) else original


def _require_jobspec(clause: str, topic: str) -> None:
    """Register `clause`: such a request has the jobspec that was submitted, with its updates."""

    @RULES.judge(clause, sent("request", topic), views=[SUBMISSIONS, UPDATES])
    def judge(record: Record, seen: Seen) -> Finding:
        submission: Submission | None = seen.at(SUBMISSIONS, job_id(record))
        got = payload(record).get("jobspec")
        if submission is None or submission.submitted is None or not isinstance(got, dict):
            return None
        original = decoded(submission.jobspec)
        plain, updates = without_environment(got), updates_of(seen, job_id(record))
        if without_environment(_updated(original, updates)) == plain:
            return True
        old = [each for each in updates if seen.is_old(each.n)]
        if len(old) < len(updates) and without_environment(_updated(original, old)) == plain:
            return None  # it may have been sent before the update: a router stamps it later
        text = f"{topic_of(record)} of job {job_id(record)}: jobspec: expected the submitted one"
        return Broken(f"{text}, got {got!r:.80}", (submission.n,))


_require_jobspec("33.defaults.7", topics.SCHED_ALLOC)
_require_jobspec("32.start.7", "<exec>.start")
