"""Messages that cross: what a party has said before it could know better breaks no clause."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Record
from tests.support.judged import Trace, hand_made, judge, made, made_event, made_note

MANAGER, EXEC, CLIENT = topics.JOB_MANAGER, topics.JOB_EXEC, "client"
JOB = 7
FOLLOW = made(EXEC, MANAGER, Request(topics.JOB_JOURNAL, {}, 3, STREAMING))
TOLD = Response(topics.JOB_JOURNAL, {"events": []}, 0, 3, STREAMING, routes=(EXEC,))
WITHDRAWAL = made(EXEC, MANAGER, Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE))


def clauses(*steps: Trace | Record, at_rest: bool = False) -> list[str]:
    found = judge(hand_made(*steps), ALL_RULES, cut=not at_rest).violations
    return [each.clause for each in found]


def crossing(sent: Trace, other: Trace) -> Trace:
    """`sent` is sent before `other`, and arrives after it."""
    first, last = sent
    moved = [
        msgspec.structs.replace(each, n=each.n + 1, ref=each.ref and each.ref + 1) for each in other
    ]
    return [first, *moved, msgspec.structs.replace(last, n=len(moved) + 2)]


# --- a client ends its requests by its own disconnect


def test_response_that_was_sent_before_the_disconnect_may_come_later() -> None:
    late = crossing(made(MANAGER, EXEC, TOLD), WITHDRAWAL)
    assert clauses(FOLLOW, late) == []


def test_response_that_was_sent_after_the_disconnect_is_named() -> None:
    said = clauses(FOLLOW, WITHDRAWAL, made(MANAGER, EXEC, TOLD))
    assert "6.response.1" in said


def test_response_to_another_matchtag_is_named_also_if_it_crosses() -> None:
    other = msgspec.structs.replace(TOLD, matchtag=4)
    late = crossing(made(MANAGER, EXEC, other), WITHDRAWAL)
    assert "6.response.1" in clauses(FOLLOW, late)


# --- a cancel


INFO = topics.JOB_INFO
WATCH = made(CLIENT, INFO, Request(topics.INFO_WATCH, {"id": JOB}, 5, STREAMING))
END = made(INFO, CLIENT, Response(topics.INFO_WATCH, None, Errno.ENODATA, 5))
CANCEL = made(CLIENT, INFO, Request(topics.INFO_WATCH_CANCEL, {"matchtag": 5}, flags=NORESPONSE))


def test_stream_whose_end_crosses_its_cancel_has_ended() -> None:
    assert "6.cancel.3" not in clauses(WATCH, crossing(END, CANCEL), at_rest=True)


def test_stream_that_goes_on_after_its_cancel_is_named() -> None:
    assert "6.cancel.3" in clauses(WATCH, CANCEL, at_rest=True)


# --- a timeout


def answered(kind: str, **data: Any) -> Trace:
    payload = {"id": JOB, "type": kind, "data": data}
    return made(EXEC, MANAGER, Response(f"{EXEC}.start", payload, routes=(MANAGER,)))


TIMEOUT = answered("exception", severity=0, type="timeout", note="")
GRANTED = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "starttime": 1e9,
        "expiration": 1e9 + 1,
    },
}
GRANT = made(
    topics.SCHED,
    MANAGER,
    Response(topics.SCHED_ALLOC, {"id": JOB, "type": 0, "R": GRANTED}, routes=(MANAGER,)),
)
HELLO = made(EXEC, MANAGER, Request(topics.EXEC_HELLO, {"service": EXEC}, 1))
ACCEPTED = made(MANAGER, EXEC, Response(topics.EXEC_HELLO, None, 0, 1))
START = made(MANAGER, EXEC, Request(f"{EXEC}.start", {"id": JOB, "userid": 1, "jobspec": {}}))
BEGUN = (HELLO, ACCEPTED, GRANT, START)
EXTENDED = made_event(JOB, "resource-update", expiration=1e9 + 3600)
EXPIRED = made_event(JOB, "exception", type="timeout", severity=0, note="", userid=1)


@pytest.mark.parametrize("again", [False, True])
def test_timeout_that_crossed_the_new_expiration_may_be_told_again(again: bool) -> None:
    """The answers to a repeated start tell the same story."""
    repeated = [START, TIMEOUT, EXPIRED] if again else []
    said = clauses(*BEGUN, TIMEOUT, EXTENDED, EXPIRED, *repeated)
    assert "20.overview.5" not in said


def test_timeout_after_the_new_expiration_was_said_is_named() -> None:
    assert "20.overview.5" in clauses(*BEGUN, EXTENDED, TIMEOUT, EXPIRED)


@pytest.mark.parametrize("is_answered", [False, True])
def test_step_of_the_clock_before_the_service_answers_may_have_preceded_the_start(
    is_answered: bool,
) -> None:
    """The service notices a step by itself, before or after it takes up the start."""
    step = made_note("clock", "broker", by=1.0)
    started = answered("start")
    steps = (started, step) if is_answered else (step, started)
    update = made_event(JOB, "resource-update", expiration=1e9 + 8)  # when EXPIRED is logged
    found = clauses(*BEGUN, *steps, update, TIMEOUT, EXPIRED)
    assert ("20.overview.5" in found) == is_answered


@pytest.mark.parametrize("is_awaited", [False, True])
def test_expiration_that_crosses_the_request_for_the_journal_is_not_in_it(is_awaited: bool) -> None:
    """invariant.expirations-told: the execution service reads the eventlog when the journal begins.

    The trace ends while the journal has not told what was logged after the request had come.
    """
    steps = [FOLLOW, [EXTENDED]] if is_awaited else [crossing(FOLLOW, [EXTENDED])]
    found = judge(
        hand_made(*BEGUN, answered("start"), *steps, made(MANAGER, EXEC, TOLD)), ALL_RULES
    )
    said = [each.clause for each in found.violations]
    assert ("invariant.expirations-told" in said) == is_awaited


# --- an update and a request that waits for a commit


@pytest.mark.parametrize("durations", [(60.0,), (0, 60.0), (2.0,)])
def test_request_of_before_an_update_does_not_shorten_the_duration(
    durations: tuple[float, ...],
) -> None:
    """21.events.11: what the jobspec has had counts, also what was logged before the first request.

    Without a limit for a while, the job may end whenever; 2 s are too short for its new end.
    """
    named = "attributes.system.duration"
    updates = [made_event(JOB, "jobspec-update", **{named: each}) for each in durations]
    jobspec = {"attributes": {"system": {"duration": 1.0}}}
    asked = made(
        MANAGER, topics.SCHED, Request(topics.SCHED_ALLOC, {"id": JOB, "jobspec": jobspec})
    )
    end = made_event(JOB, "resource-update", expiration=int(1e9) + 60)
    assert ("21.events.11" in clauses(*updates, asked, GRANT, end)) == (durations == (2.0,))
