"""Which answer of the scheduler an update of a running job has to follow."""

from __future__ import annotations

import msgspec
import pytest

from flux_trio.judge.rules import ALL_RULES, ROUTED_RULES
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Kind
from tests.support.judged import attached, hand_made, judge, made, made_event, made_note

MANAGER, SCHED, OWNER = topics.JOB_MANAGER, topics.SCHED, "owner"
JOB = 7
ATTACHED = attached()
EVENTS = [made_event(JOB, name) for name in ("submit", "validate", "depend", "priority", "alloc")]
UPDATE = made(OWNER, MANAGER, Request(topics.JOB_UPDATE, {"id": JOB}, 1, routes=(OWNER,)))
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


LOADED_AGAIN = [made_note(Kind.MODULE.value, "broker", module=MANAGER, what=what) for what in ENDED]


@pytest.mark.parametrize("is_of_another", [True, False])
def test_answer_that_ended_with_its_job_manager_is_not_of_an_update_to_the_next_one(
    is_of_another: bool,
) -> None:
    """27.expiration.1: the next one may have nobody to ask, and has a request of its own."""
    between = LOADED_AGAIN if is_of_another else []
    updated = made_event(JOB, "resource-update", expiration=99)
    trace = hand_made(*ATTACHED, *EVENTS, ASKED, ALLOWED, *between, UPDATE, updated)
    found = [each.clause for each in judge(trace, ALL_RULES, cut=True).violations]
    assert ("27.expiration.1" in found) == (not is_of_another)
