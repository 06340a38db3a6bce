"""RFC 28 as the current edition has it: the clauses that this edition states otherwise.

A peer acquires all resources at once. The first response has the inventory and the targets that are
up; each later response has what has changed, in the keys `up`, `down`, `shrink`, `expiration`,
`property-add` and `property-remove`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import idset_of
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, job_id, message, payload, received, sent
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.rules.rfc28_responses import TELL, as_sent, excluded_and_up, tells
from flux_trio.judge.rules.rfc28_scheduler import require_avoided
from flux_trio.judge.rules.rfc28_stream import ANSWERED, STREAMS, stream_of
from flux_trio.judge.views.acquiring import NONE, change_of
from flux_trio.judge.views.holding import GRANTS
from flux_trio.judge.views.jobs import LIFE
from flux_trio.judge.views.resource_sets import ALLOCATING
from flux_trio.judge.views.resources import (
    AS_RECEIVED,
    AS_SENT,
    HELD,
    Acquired,
    as_received,
    is_first_response,
)
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules(current=True)

CHANGES: Final = ("up", "down", "shrink", "expiration", "property-add", "property-remove")


@RULES.judge("28.acquire.1", sent("request", topics.RESOURCE_ACQUIRE))
def acquire_has_no_payload(record: Record, _seen: Seen) -> Finding:
    found = getattr(message(record), "payload", None)
    return not found or Broken(f"resource.acquire: expected no payload, got {found!r:.80}")


@RULES.judge("28.error.3", ANSWERED, views=[STREAMS], needs_headers=True)
def an_acquire_without_a_stream_is_refused(record: Record, seen: Seen) -> Finding:
    stream = stream_of(record, seen)
    if stream is None or stream.is_streaming:
        return None
    return bool(errnum(record)) or Broken(
        "resource.acquire has no streaming flag and was served; expected an error", (stream.n,)
    )


def _is_first(record: Record, seen: Seen) -> bool | None:
    """Whether a response is the first to its acquire; None for an error, or an unknown acquire."""
    had = as_sent(record, seen)
    return None if had is None or errnum(record) else is_first_response(had, record.message)


@RULES.judge("28.grow.2", TELL, views=[AS_SENT])
def the_first_response_alone_has_the_inventory(record: Record, seen: Seen) -> Finding:
    is_first, content = _is_first(record, seen), payload(record)
    if is_first is None:
        return None
    if not is_first:
        has = "resources" in content
        return not has or Broken("resource.acquire: resources: expected in the first response only")
    if isinstance(content.get("resources"), dict):
        return True
    got = f"got {content['resources']!r:.80}" if "resources" in content else "it is missing"
    return Broken(f"first response to resource.acquire: resources: expected an R (RFC 20), {got}")


@RULES.judge("28.grow.3", TELL, views=[AS_SENT])
def the_first_response_says_what_is_up(record: Record, seen: Seen) -> Finding:
    if not _is_first(record, seen):
        return None
    up = payload(record).get("up")
    if idset_of(up) is not None:
        return True
    got = f"got {up!r:.80}" if "up" in payload(record) else "it is missing"
    return Broken(f"first response to resource.acquire: up: expected an idset (RFC 22), {got}")


@RULES.judge("28.background.7", TELL, views=[AS_SENT])
def later_responses_say_what_has_changed(record: Record, seen: Seen) -> Finding:
    if _is_first(record, seen) is not False:
        return None
    if not payload(record).keys().isdisjoint(CHANGES):
        return True
    keys = ", ".join(CHANGES)
    return Broken(f"resource.acquire: expected one of {keys}, got {payload(record)!r:.80}")


def _changes(clause: str, key: str, before: Callable[[Acquired, Any], Idset], what: str) -> None:
    """Register `clause`: the targets under `key` of a later response are among those `before`."""

    @RULES.judge(clause, TELL, views=[AS_SENT])
    def judge(record: Record, seen: Seen) -> Finding:
        had, content = as_sent(record, seen), payload(record)
        if had is None or key not in content or _is_first(record, seen) is not False:
            return None
        targets = idset_of(content[key])
        if not targets:
            expected = "expected an idset of some targets"
            return Broken(f"resource.acquire: {key}: {expected}, got {content[key]!r:.80}")
        if others := targets - before(had, content):
            return Broken(
                f"resource.acquire: {key}: targets {others} are not {what}", (had.changed,)
            )
        return True


_changes("28.online.1", "up", lambda had, _content: had.offline, "acquired and down")
_changes(
    "28.offline.1",
    "down",
    lambda had, content: had.online | change_of(content).shrunk,
    "acquired and up",
)
_changes(
    "28.shrink.1",
    "shrink",
    lambda had, content: had.granted & (change_of(content).down | had.offline),
    "acquired, and in down too",
)


def _unfreed(seen: Seen) -> Iterable[Broken]:
    had = as_received(seen, seen.facts.scheduler)
    for jobid, held in seen.all(HELD).items() if had is not None else ():
        targets = held.targets & (NONE if had is None else had.offline)
        if targets and seen.at(LIFE, jobid) is None and seen.at(GRANTS, jobid) is not None:
            text = f"job {jobid} is over, and the scheduler was not told that it frees"
            yield Broken(f"{text} targets {targets}, which are down", (held.n,), job=jobid)


@RULES.judge(
    "28.offline.5",
    received("request", topics.SCHED_FREE),
    views=[AS_RECEIVED, HELD, LIFE, GRANTS],
    debts=_unfreed,
)
def targets_that_are_down_are_freed(record: Record, seen: Seen) -> Finding:
    """A job on a target that goes down is freed after its end, when its resources are clean."""
    had, held = as_received(seen, record.party), seen.at(HELD, job_id(record))
    return had is not None and held is not None and bool(held.targets & had.offline)


require_avoided(RULES, "28.shrink.3", ALLOCATING, lambda had: had.taken, "shrunk")
require_avoided(RULES, "28.offline.3", ALLOCATING, lambda had: had.offline, "down")
tells(RULES, "28.criteria.5", ("offline", excluded_and_up))


@RULES.judge("28.shrink.4", sent("request", topics.JOB_RAISE), views=[AS_RECEIVED, HELD, GRANTS])
def jobs_on_targets_that_are_down_go_on(record: Record, seen: Seen) -> Finding:
    """The execution service ends jobs on targets that are lost; the scheduler does not."""
    if record.party != seen.facts.scheduler or payload(record).get("severity") != 0:
        return None
    had, held = as_received(seen, record.party), seen.at(HELD, job_id(record))
    if had is None or held is None or seen.at(GRANTS, job_id(record)) is None:
        return None
    gone = held.targets & (had.offline | had.taken)
    text = f"job {job_id(record)}: an exception, and its targets {gone} are down"
    return Broken(text, (had.changed,)) if gone else None
