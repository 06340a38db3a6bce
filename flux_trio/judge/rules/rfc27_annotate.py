"""RFC 27, Alloc Annotate: the annotations of a waiting job, and their record.

The dictionary a job manager keeps shows in the alloc event (27.success.7); the single steps of
merging do not show in a trace, and have tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from flux_trio.judge.checks.shapes import NUMBER, OBJECT, STRING, Shape, require_key
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    OWN,
    errnum,
    job_id,
    logged,
    name_of,
    no_key,
    noted,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, View, view
from flux_trio.judge.views.commits import NULL, encoded
from flux_trio.judge.views.eventlogs import LOGGING, Logging
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.jobs import LIFE, Life, context_of
from flux_trio.judge.views.scheduling import (
    ANNOTATE,
    ANNOTATES,
    ASKED,
    LINK,
    asked_of,
    is_pending,
    link_of,
)
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()

ANSWERED: Final = sent("response", topics.SCHED_ALLOC)
MEMO: Final = "memo"
USER: Final = "user"
"""The key of what users write (readings: Annotations of the alloc event)."""


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary after a recursive update by another; a null removes its key (readings:
    Annotations).
    """
    result = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result


def pruned(value: Any) -> Any:
    """Return a value without the empty dictionaries in it; the RFC does not say whether they are
    kept.
    """
    if not isinstance(value, dict):
        return value
    return {key: left for key, each in value.items() if (left := pruned(each)) != {}}


def _fold_annotations(
    text: tuple[int, str] | None, _part: None, record: Record, seen: Seen
) -> tuple[Place, str] | None:
    """By job id: JSON text, which is hashable, and its record."""
    if record.message is None and name_of(record) != MEMO:
        return None
    known = current(text, link_of(seen).lost)
    if record.message is None:  # what a user writes is in the dictionary, too
        return (record.n, encoded(merged(known, {USER: context_of(record)})))
    if topic_of(record) == topics.SCHED_FREE:  # a grant is given back before its alloc event
        known.pop("sched", None)
        return (record.n, encoded(known)) if known else None
    content = payload(record)
    added = content.get("annotations")
    match content.get("type"):
        case _ if errnum(record) or not is_pending(asked_of(seen, job_id(record)), seen):
            return text
        case 0 | 1 if isinstance(added, dict):
            known = merged(known, added)
        case 2:
            return None
        case 3:
            known.pop("sched", None)
    kept = encoded(known) if known else NULL
    return None if kept == NULL else (record.n, kept)


def current(text: tuple[int, str] | None, lost: int) -> dict[str, Any]:
    """Return the annotations of a job. Those of a scheduler that was lost since are left out
    (readings: Annotations).
    """
    if text is None:
        return {}
    n, json = text
    known: dict[str, Any] = msgspec.json.decode(json)
    if n < lost:
        known.pop("sched", None)
    return known


ANNOTATIONS: Final[View] = view(
    "annotations",
    received("response", topics.SCHED_ALLOC),
    while_live(OWN, sent("request", topics.SCHED_FREE)),
    logged("alloc", "clean", MEMO),
    key=job_id,
    fold=_fold_annotations,
    reads=(ASKED, LINK),
)
"""By job id: the annotations of a job after all ANNOTATE and SUCCESS that its job manager has
received, and all memos that it has logged."""


PLUGINS: Final = view(
    "plugins",
    noted(Kind.HOOK),
    key=no_key,
    fold=lambda first, _part, record, _seen: first or record.n,
    state=Place,
)
"""A single state: the record at which a plugin was first called."""


@RULES.judge("27.success.7", logged("alloc"), views=[ANNOTATIONS, LIFE, PLUGINS])
def alloc_event_has_the_annotations(record: Record, seen: Seen) -> Finding:
    jobid = job_id(record)
    granted, lost = asked_of(seen, jobid).granted, link_of(seen).lost
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or not granted:
        return None
    # lost after the SUCCESS, it has done its part
    expected = pruned(current(seen.at(ANNOTATIONS, jobid), lost if lost < granted else 0))
    got = pruned(context_of(record).get("annotations", {}))
    if isinstance(got, dict) and seen.at(PLUGINS):  # which may add keys, and not in `sched`
        got = {key: each for key, each in got.items() if key == "sched" or key in expected}
    if not life.t_submit and isinstance(got, dict):  # there may be memos from before the trace
        got = {key: each for key, each in got.items() if key != USER}
        expected.pop(USER, None)
    if got == expected:
        return bool(expected)
    text = f"job {jobid}: alloc event: annotations: expected {expected}, got {got!r:.200}"
    return Broken(text, (granted,))


@RULES.judge("27.annotate.1", ANNOTATES, views=[SCHED_JOBS])
def annotate_while_it_waits(record: Record, seen: Seen) -> Finding:
    jobid = job_id(record)
    if payload(record).get("type") != ANNOTATE or record.party != seen.facts.scheduler:
        return None
    known = sched_job(seen, jobid)
    if known.alloc or not known.ended:
        return True
    return Broken(f"job {jobid}: ANNOTATE after the final answer", (known.ended,))


require_key(
    RULES,
    "27.annotate.2",
    ANNOTATES,
    key="annotations",
    shape=OBJECT,
    when=lambda content: content.get("type") == ANNOTATE,
)


def _annotations(record: Record, _seen: Seen) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return the annotations of a response or an alloc event."""
    content = context_of(record) if record.message is None else payload(record)
    found = content.get("annotations")
    return [(f"job {job_id(record)}: annotations", found)] if isinstance(found, dict) else []


def _of_sched(record: Record, seen: Seen) -> Iterable[tuple[str, dict[str, Any]]]:
    for what, found in _annotations(record, seen):
        if isinstance(found.get("sched"), dict):
            yield f"{what}: sched", found["sched"]


def or_null(shape: Shape) -> Shape:
    """Return the shape of a value that may also be null, which removes its key."""
    return Shape(f"{shape.words}, or null", lambda value: value is None or shape.fits(value))


def _scheduler_key(clause: str, key: str, shape: Shape) -> None:
    require_key(
        RULES, clause, ANSWERED, key=key, shape=or_null(shape), subjects=_of_sched, required=False
    )


require_key(
    RULES,
    "27.annotate.10",
    ANSWERED,
    key="sched",
    shape=or_null(OBJECT),
    subjects=_annotations,
    required=False,
)
_scheduler_key("27.annotate.11", "t_estimate", NUMBER)
_scheduler_key("27.annotate.12", "reason_pending", STRING)
_scheduler_key("27.annotate.13", "resource_summary", STRING)
_scheduler_key("27.annotate.14", "queue", STRING)
require_key(
    RULES,
    "27.annotate.15",
    ANSWERED,
    logged("alloc"),
    key="user",
    shape=or_null(OBJECT),
    subjects=_annotations,
    required=False,
)


@RULES.by(LOGGING, "27.annotate.19", logged(ANY_TOPIC), views=[ANNOTATIONS])
def annotations_are_volatile(logging: Logging, record: Record, seen: Seen) -> Finding:
    """Annotations are not logged before the alloc event."""
    name = logging.name
    if name != "alloc" and not logging.has_annotations:
        return None
    jobid = job_id(record)
    if seen.at(ANNOTATIONS, jobid) is None:
        return None
    if name == "alloc":
        return bool(asked_of(seen, jobid).annotated)
    return Broken(f"job {jobid}: {name} event: has annotations; only the alloc event may")
