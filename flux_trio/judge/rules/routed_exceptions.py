"""Exceptions in the trace of a router, which shows the job-exception event of each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.shapes import part
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, payload, sent, topic_of
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.eventlogs import LOG
from flux_trio.judge.views.jobs import context_of
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules(routed=True)

PUBLISHED: Final = sent("event", topics.JOB_EXCEPTION_EVENT)
What = tuple[Any, Any]
"""The type and the severity of an exception."""


class UnmatchedExceptions(Live, frozen=True, gc=False):
    """The exceptions of a job that were published or logged, but not both yet."""

    published: tuple[tuple[What, Place], ...] = ()
    logged: tuple[What, ...] = ()


def _what(found: dict[str, Any]) -> What:
    return str(found.get("type")), str(found.get("severity"))


def _refused(record: Record, _seen: Seen) -> list[tuple[Any, None]]:
    """Return the jobs that were refused at submit: they have no eventlog."""
    errors = part(payload(record), "errors", list)
    pairs = [each for each in errors if each and isinstance(each, list)]
    return [(each[0], None) for each in pairs if type(each[0]) is int]


def _fold(
    raised: UnmatchedExceptions | None, _part: None, record: Record, _seen: Seen
) -> UnmatchedExceptions | None:
    if topic_of(record) == topics.JOB_SUBMIT:
        return None
    raised = raised or UnmatchedExceptions()
    if record.message is not None:
        what = _what(payload(record))
        if what in raised.logged:
            at = raised.logged.index(what)
            return raised.but(logged=raised.logged[:at] + raised.logged[at + 1 :])
        return raised.but(published=(*raised.published, (what, record.n)))
    what = _what(context_of(record))
    for each in raised.published:
        if each[0] == what:
            left = tuple(other for other in raised.published if other is not each)
            return raised.but(published=left)
    return raised.but(logged=(*raised.logged, what))


RAISED: Final = view(
    "raised",
    PUBLISHED,
    logged("exception"),
    key=job_id,
    parts=_refused,
    many=sent("response", topics.JOB_SUBMIT),
    fold=_fold,
)
"""The exceptions (`UnmatchedExceptions`) of each job, by job id."""


def _unlogged(seen: Seen) -> Iterable[Broken]:
    """Of a job that is older than the trace, the event may be as well."""
    for jobid, raised in seen.all(RAISED).items():
        if not seen.facts.begins and seen.at(LOG, jobid) is None:
            continue
        for (type_, severity), n in raised.published:
            text = f"job {jobid}: {type_} of severity {severity} was published as job-exception"
            yield Broken(f"{text}, and no such exception event is logged", (n,), job=jobid)


@RULES.judge("21.criteria.7", PUBLISHED, views=[RAISED, LOG], debts=_unlogged)
def exceptions_that_are_published_are_logged(record: Record, _seen: Seen) -> Finding:
    return job_id(record) is not None
