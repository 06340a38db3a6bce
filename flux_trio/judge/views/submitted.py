"""Views of a job's jobspec: as it was stored at submission, and as its eventlog has changed it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from flux_trio.formats import FormatError, apply_update
from flux_trio.judge.engine.selector import (
    OWN,
    job_id,
    logged,
    name_of,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, View, view
from flux_trio.judge.views.commits import decoded, encoded, stored_jobspecs
from flux_trio.judge.views.jobs import context_of, submitted
from flux_trio.judge.views.traits import WITH_JOBSPEC
from flux_trio.messages import topics
from flux_trio.trace import Record

ENDS: Final = ("clean", "invalidate")


class Update(NamedTuple):
    """One key and its new value, from a jobspec-update event."""

    path: str
    json: str
    n: Place

    @property
    def value(self) -> Any:
        return decoded(self.json)


def _fold_updates(
    found: tuple[Update, ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[Update, ...] | None:
    if name_of(record) in ENDS:
        return None
    new = context_of(record).items()
    return (*(found or ()), *(Update(k, encoded(v), record.n) for k, v in new))


UPDATES: Final = view(
    "updates",
    logged("jobspec-update"),
    while_live(OWN, logged(*ENDS)),
    key=job_id,
    fold=_fold_updates,
)
"""By job id: the entries of its jobspec-update events, oldest first."""


def updates_of(seen: Seen, jobid: Any) -> tuple[Update, ...]:
    """Return the entries of a job's jobspec-update events, as UPDATES has them."""
    return seen.at(UPDATES, jobid) or ()


def _jobspecs(record: Record, seen: Seen) -> Iterable[tuple[int, str]]:
    """Return those that are stored, or else as they are submitted to the job manager."""
    if topic_of(record) == topics.JOB_SUBMIT:
        known = seen.all(ORIGINAL)
        jobspecs = [(job["id"], job.get("jobspec")) for job in submitted(record)]
        return [
            (job, encoded(jobspec)) for job, jobspec in jobspecs if job not in known and jobspec
        ]
    return stored_jobspecs(record)


ORIGINAL: Final[View] = view(
    "original jobspec",
    logged(*ENDS),
    key=job_id,
    parts=_jobspecs,
    many=(
        *sent("request", *topics.COMMITS, mark=WITH_JOBSPEC),
        *received("request", topics.JOB_SUBMIT),
    ),
    fold=lambda _old, text, _record, _seen: text,
)
"""The jobspec of each active job as it was submitted, by job id."""

SUBMITTED: Final = (UPDATES, ORIGINAL)
"""The views that `original_of`, `updates_of` and `updated` read."""


def original_of(seen: Seen, jobid: Any) -> dict[str, Any] | None:
    """Return an active job's jobspec as it was stored; None when the trace does not show it."""
    text: str | None = seen.at(ORIGINAL, jobid)
    found = decoded(text) if text is not None else None
    return found if isinstance(found, dict) else None


def updated(jobspec: dict[str, Any], updates: Iterable[Update]) -> dict[str, Any] | None:
    """Return a jobspec with updates applied; None when they cannot be applied."""
    try:
        for update in updates:
            jobspec = apply_update(jobspec, update.path, update.value)
    except FormatError:
        return None
    return jobspec
