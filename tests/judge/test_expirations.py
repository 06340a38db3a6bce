"""Which answer of the scheduler an update of a running job has to follow."""

from __future__ import annotations

import msgspec
import pytest

from flux_trio.judge.rules import ALL_RULES, ROUTED_RULES
from flux_trio.messages import Errno, Event, Request, Response, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.trace import Kind, Record
from tests.support.judged import Trace, attached, hand_made, judge, made, made_event, made_note

MANAGER, SCHED, OWNER = topics.JOB_MANAGER, topics.SCHED, "owner"
JOB = 7
ATTACHED = attached()
EVENTS = [made_event(JOB, name) for name in ("submit", "validate", "depend", "priority", "alloc")]
CHANGED = {"id": JOB, "updates": {"attributes.system.duration": 0}}
UPDATE = made(OWNER, MANAGER, Request(topics.JOB_UPDATE, CHANGED, 1, routes=(OWNER,)))
ENDED = ("crashed", "started")
PROPOSAL = {"id": JOB, "expiration": 0}
ASKED = made(MANAGER, SCHED, Request(topics.SCHED_EXPIRATION, PROPOSAL, 2, routes=(MANAGER,)))
ALLOWED = made(SCHED, MANAGER, Response(topics.SCHED_EXPIRATION, None, 0, 2, routes=(MANAGER,)))
REFUSED = made(MANAGER, OWNER, Response(topics.JOB_UPDATE, None, Errno.EINVAL, 1, routes=(OWNER,)))


@pytest.mark.parametrize("is_of_update", [True, False])
def test_refusal_of_an_update_that_the_scheduler_allows_is_named(is_of_update: bool) -> None:
    """27.criteria.12: an expiration that was proposed before the update came is not of it."""
    steps = (UPDATE, ASKED) if is_of_update else (ASKED, UPDATE)
    trace = hand_made(*ATTACHED, *EVENTS, *steps, ALLOWED, REFUSED)
    found = [each.clause for each in judge(trace, ALL_RULES, cut=True).violations]
    assert ("27.criteria.12" in found) == is_of_update


@pytest.mark.parametrize("in_force", [0, 99])
def test_allowed_expiration_that_is_in_force_already_is_not_of_the_update(in_force: int) -> None:
    """27.criteria.12: a scheduler that has just begun is told it again, while an update is open."""
    update = made_event(JOB, "resource-update", expiration=in_force)
    trace = hand_made(*ATTACHED, *EVENTS, update, UPDATE, ASKED, ALLOWED, REFUSED)
    found = [each.clause for each in judge(trace, ALL_RULES, cut=True).violations]
    assert ("27.criteria.12" in found) == (in_force != PROPOSAL["expiration"])


@pytest.mark.parametrize("is_alone", [True, False])
def test_refusal_without_a_matchtag_is_of_a_job_that_asked_alone(is_alone: bool) -> None:
    """27.expiration.10: of two open requests, nobody can tell which one was refused."""
    request = Request(topics.SCHED_EXPIRATION, PROPOSAL, routes=(MANAGER,))
    refusal = Response(topics.SCHED_EXPIRATION, "no", Errno.EINVAL, routes=(MANAGER,))
    other = made(MANAGER, SCHED, msgspec.structs.replace(request, payload={"id": 8}))
    asked = [made(MANAGER, SCHED, request), *([] if is_alone else [other])]
    answered = [made(SCHED, MANAGER, refusal)] * len(asked)
    update = made_event(JOB, "resource-update", expiration=PROPOSAL["expiration"])
    trace = hand_made(*ATTACHED, *EVENTS, *asked, *answered, update)
    found = [each.clause for each in judge(trace, ROUTED_RULES, cut=True).violations]
    assert ("27.expiration.10" in found) == is_alone


@pytest.mark.parametrize("is_alone", [True, False])
def test_refusal_without_a_matchtag_ends_when_the_job_may_have_got_another_answer(
    is_alone: bool,
) -> None:
    """27.expiration.10: the job asks again, beside another one, and both are allowed."""
    request = Request(topics.SCHED_EXPIRATION, PROPOSAL, routes=(MANAGER,))
    other = msgspec.structs.replace(request, payload={"id": 8})
    no = Response(topics.SCHED_EXPIRATION, "no", Errno.EINVAL, routes=(MANAGER,))
    yes = Response(topics.SCHED_EXPIRATION, None, 0, routes=(MANAGER,))
    again = [] if is_alone else [request, other]
    asked = [made(MANAGER, SCHED, each) for each in again]
    answered = [made(SCHED, MANAGER, yes) for _ in again]
    refused = (made(MANAGER, SCHED, request), made(SCHED, MANAGER, no))
    update = made_event(JOB, "resource-update", expiration=PROPOSAL["expiration"])
    trace = hand_made(*ATTACHED, *EVENTS, *refused, *asked, *answered, update)
    found = [each.clause for each in judge(trace, ROUTED_RULES, cut=True).violations]
    assert ("27.expiration.10" in found) == is_alone


LOADED_AGAIN = [made_note(Kind.MODULE.value, "broker", module=MANAGER, what=what) for what in ENDED]
LEFT = [made(SCHED, MANAGER, Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE))]


@pytest.mark.parametrize("between", [[], LOADED_AGAIN, LEFT], ids=["nothing", "loaded", "left"])
def test_answer_that_ended_with_its_service_is_not_of_a_later_update(
    between: list[Trace | Record],
) -> None:
    """27.expiration.1: there may be nobody to ask then."""
    updated = made_event(JOB, "resource-update", expiration=99)
    trace = hand_made(*ATTACHED, *EVENTS, ASKED, ALLOWED, *between, UPDATE, updated)
    found = [each.clause for each in judge(trace, ALL_RULES, cut=True).violations]
    assert ("27.expiration.1" in found) == (not between)


@pytest.mark.parametrize("is_handled", [True, False])
def test_answer_that_comes_as_the_last_update_is_answered_may_lead_to_an_event(
    is_handled: bool,
) -> None:
    """27.expiration.1: the job manager has asked twice, and answers the request before it acts."""
    again = made(MANAGER, SCHED, Request(topics.SCHED_EXPIRATION, PROPOSAL, 3, routes=(MANAGER,)))
    too = made(SCHED, MANAGER, Response(topics.SCHED_EXPIRATION, None, 0, 3, routes=(MANAGER,)))
    done = made(MANAGER, OWNER, Response(topics.JOB_UPDATE, None, 0, 1, routes=(OWNER,)))
    turn = [made(MANAGER, OWNER, Event("said")), made(OWNER, MANAGER, Event("told"))]
    updated = made_event(JOB, "resource-update", expiration=0)
    steps: list[Trace | Record] = [
        UPDATE,
        ASKED,
        again,
        ALLOWED,
        updated,
        too,
        *(turn if is_handled else []),
    ]
    trace = hand_made(*ATTACHED, *EVENTS, *steps, done, updated)
    trace = [msgspec.structs.replace(each, t=trace[0].t) for each in trace]
    found = [each.clause for each in judge(trace, ALL_RULES, cut=True).violations]
    assert ("27.expiration.1" in found) == is_handled


DONE = made(MANAGER, OWNER, Response(topics.JOB_UPDATE, None, 0, 1, routes=(OWNER,)))
NO = Response(topics.SCHED_EXPIRATION, "no", Errno.EINVAL, 2, routes=(MANAGER,))
REFUSES = made(SCHED, MANAGER, NO)
UPDATED = made_event(JOB, "resource-update", expiration=PROPOSAL["expiration"])
RENAMED = {"id": JOB, "updates": {"attributes.system.job.name": "other"}}
RENAME = made(OWNER, MANAGER, Request(topics.JOB_UPDATE, RENAMED, 1, routes=(OWNER,)))
REFUSED_TO_NOBODY: dict[str, tuple[Trace | Record, ...]] = {
    "the update was logged": (UPDATE, UPDATED, *ATTACHED, ASKED, REFUSES, DONE),
    "the update is of the name": (*ATTACHED, RENAME, ASKED, REFUSES, DONE),
}
REFUSED_TO_AN_UPDATE: dict[str, tuple[Trace | Record, ...]] = {
    "logged": (*ATTACHED, UPDATE, ASKED, REFUSES, UPDATED),
    "logged, and it is older than the scheduler": (UPDATE, *ATTACHED, ASKED, REFUSES, UPDATED),
    "answered": (*ATTACHED, UPDATE, ASKED, REFUSES, DONE),
}


@pytest.mark.parametrize("story", REFUSED_TO_NOBODY | REFUSED_TO_AN_UPDATE)
def test_refusal_counts_if_an_update_waits_for_it(story: str) -> None:
    """27.expiration.10: a scheduler that has come since is told what was decided before it came,
    and the job manager may propose a new expiration by itself.
    """
    steps = (REFUSED_TO_NOBODY | REFUSED_TO_AN_UPDATE)[story]
    trace = hand_made(*ATTACHED, *EVENTS, *LEFT, *steps)
    found = [each.clause for each in judge(trace, ALL_RULES, cut=True).violations]
    assert ("27.expiration.10" in found) == (story in REFUSED_TO_AN_UPDATE)
