"""RFC 28, Release: the scheduler's release of shrunk targets, and the response."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import IDSET, STRING, idset_of, require_key
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, message, payload, received, sent
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.acquiring import NONE
from flux_trio.judge.views.calls import call_key
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.resources import AS_RECEIVED, AS_SENT, HELD, Acquired, as_received
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

RULES: Final = Rules()

RELEASE: Final = sent("request", topics.RESOURCE_RELEASE)


def _asked(record: Record, _seen: Seen) -> list[tuple[str, dict[str, Any]]]:
    """A request without payload lacks the key too; no clause says more of the payload."""
    return [(f"{topics.RESOURCE_RELEASE} request", payload(record))]


require_key(RULES, "28.release.2", RELEASE, key="group", shape=STRING, subjects=_asked)
require_key(RULES, "28.release.3", RELEASE, key="targets", shape=IDSET)


def _released(record: Record) -> Idset:
    return idset_of(payload(record).get("targets")) or NONE


@RULES.judge("28.shrink.6", RELEASE, views=[AS_RECEIVED, HELD, SCHED_JOBS])
def release_waits_for_the_jobs(record: Record, seen: Seen) -> Finding:
    """Targets are released when no job holds them any more. A job whose stored R was sent to no
    party does not count.
    """
    for jobid, held in seen.all(HELD).items():
        if sched_job(seen, jobid).alloc:
            continue
        if targets := held.targets & _released(record):
            return Broken(f"targets {targets} are released, but job {jobid} holds them", (held.n,))
    return True


def _unreleased(seen: Seen) -> list[Broken]:
    had = as_received(seen, seen.facts.scheduler)
    if had is None or not had.unreleased:
        return []
    free = had.unreleased
    for held in seen.all(HELD).values():
        free -= held.targets
    since = max(had.shrunk, seen.may_act_on(seen.facts.scheduler))  # it may be free just now
    return [Broken(f"targets {free} were shrunk, are free and not released", (since,))] * bool(free)


@RULES.judge("28.release.1", RELEASE, views=[AS_RECEIVED, HELD], debts=_unreleased)
def shrunk_targets_are_released_once(record: Record, seen: Seen) -> Finding:
    had = as_received(seen, record.party)
    if had is None:
        return None
    if again := _released(record) & (had.taken - had.unreleased):
        return Broken(f"targets {again} are released a second time", (had.shrunk,))
    return bool(_released(record) & had.unreleased)


@RULES.judge("28.release.5", RELEASE, views=[AS_RECEIVED])
def release_is_of_the_acquired_group(record: Record, seen: Seen) -> Finding:
    had, group = as_received(seen, record.party), payload(record).get("group")
    if had is None or not isinstance(group, str):
        return None
    if group in had.groups:
        return True
    return Broken(f"resource.release: expected group {had.groups[0]}, got {group}", (had.n,))


@RULES.judge("28.release.6", RELEASE, views=[AS_RECEIVED])
def release_is_of_shrunk_targets(record: Record, seen: Seen) -> Finding:
    had = as_received(seen, record.party)
    if had is None or not had.taken:
        return None
    if others := _released(record) - had.taken:
        text = f"resource.release: targets {others} were not shrunk, only {had.taken}"
        return Broken(text, (had.shrunk,))
    return True


@RULES.judge("28.release.7", RELEASE, views=[AS_RECEIVED])
def release_comes_after_shrink(record: Record, seen: Seen) -> Finding:
    had = as_received(seen, record.party)
    if had is None:
        return None
    if not _released(record) & had.taken and _released(record):
        return Broken(f"targets {_released(record)} are released, but none was shrunk", (had.n,))
    return True


def _fold_release(_n: int | None, _part: None, record: Record, seen: Seen) -> Place | None:
    found = message(record)
    if not isinstance(found, Request):
        return None
    acquired: Acquired | None = seen.at(AS_SENT, found.sender)
    if acquired is None or payload(record).get("group") not in acquired.groups:
        return None
    return record.n if _released(record) and _released(record) <= acquired.unreleased else None


IN_ORDER: Final = view(
    "releases in order",
    received("request", topics.RESOURCE_RELEASE),
    sent("response", topics.RESOURCE_RELEASE),
    key=call_key,
    fold=_fold_release,
    reads=(AS_SENT,),
)
"""By client and matchtag: a resource.release of targets that were shrunk."""


@RULES.judge("28.release.4", sent("response", topics.RESOURCE_RELEASE), views=[IN_ORDER])
def a_release_in_order_is_accepted(record: Record, seen: Seen) -> Finding:
    n = seen.at(IN_ORDER, call_key(record))
    if n is None or not errnum(record):
        return n is not None
    text = f"a resource.release of shrunk targets got error {errnum(record)}"
    return Broken(text, (n,), party=record.party)


@RULES.judge("28.release.8", sent("response", topics.RESOURCE_RELEASE))
def the_answer_to_release_is_empty(record: Record, _seen: Seen) -> Finding:
    if errnum(record):
        return None
    found = getattr(message(record), "payload", None)
    return not found or Broken(f"resource.release: expected an empty answer, got {found!r:.80}")
