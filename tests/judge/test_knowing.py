"""What a party must have taken up: it answers a later request, or has begun another turn."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from flux_trio.judge import judge_trace
from flux_trio.judge.engine.knowing import ASKED_MAX, Knowledge
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Event, Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Kind, Record, Shown, Source
from flux_trio.trace.routed import Logged, Routed, records_of
from tests.judge.planted.rfc20_format import commits_of_r, with_r
from tests.judge.planted.rfc28_scheduler import on_rank, told
from tests.support.judged import (
    CLAUSES,
    Trace,
    find,
    find_all,
    hand_made,
    insert,
    judge,
    made,
    made_note,
    move,
)
from tests.support.scenarios import trace_of

OFFLINE = "28.offline.3"


# --- proofs


def ask(topic: str = "y.ask", matchtag: int = 1, flags: int = 0, **payload: object) -> Trace:
    return made("x", "y", Request(topic, payload, matchtag, flags=flags, routes=("x",)))


def answer(topic: str = "y.ask", matchtag: int = 1, **payload: object) -> Trace:
    return made("y", "x", Response(topic, payload, 0, matchtag, routes=("x",)))


TOLD = made("z", "y", Event("told"))
"""y receives it at record 2."""
TOLD_X = made("z", "x", Event("told"))
SAID = made("x", "z", Event("said"))


def knows(*steps: Trace, is_routed: bool = False) -> bool:
    """Whether y must have handled what it received at record 2."""
    known = Knowledge(is_routed=is_routed)
    for record in hand_made(*steps):
        known.observe(record)
    return known.knew("y", 2)


@pytest.mark.parametrize("is_routed", [False, True])
def test_an_answer_to_a_later_request_is_a_proof(is_routed):
    assert knows(TOLD, ask(), answer(), is_routed=is_routed)


def test_an_answer_to_an_earlier_request_is_none():
    """It may have been on its way."""
    first, second = ask(matchtag=1), ask(matchtag=2)
    of_z = [*first, *[msgspec.structs.replace(each, n=each.n + 2) for each in TOLD]]
    trace = hand_made(of_z, second, answer(matchtag=1))
    known = Knowledge()
    for record in trace:
        known.observe(record)
    assert not known.knew("y", 4)
    known.observe(msgspec.structs.replace(answer(matchtag=2)[0], n=9))
    assert known.knew("y", 4)


def test_another_turn_is_a_proof_but_not_in_the_trace_of_a_router():
    """What a router has forwarded may still wait while its receiver sends several messages."""
    turns = (TOLD, made("y", "x", Event("said")), made("x", "y", Event("heard")))
    assert knows(*turns)
    assert not knows(*turns, is_routed=True)


def test_what_is_received_in_the_same_turn_is_no_proof():
    assert not knows(TOLD, made("x", "y", Event("heard")), made("y", "x", Event("said")))


def test_a_routers_trace_has_no_matchtags_so_that_topic_and_job_tell_the_request():
    def steps(jobid: int) -> tuple[Trace, ...]:
        return TOLD, ask(matchtag=0, id=7), answer(matchtag=0, id=jobid)

    assert knows(*steps(7), is_routed=True)
    assert not knows(*steps(8), is_routed=True)
    assert not knows(*steps(7))


def test_of_two_requests_that_look_alike_the_answer_may_be_that_of_the_first():
    alike = ask(matchtag=0, id=7)
    told = [*alike, *[msgspec.structs.replace(each, n=each.n + 2) for each in TOLD]]
    known = Knowledge(is_routed=True)
    for record in hand_made(told, alike, answer(matchtag=0, id=7)):
        known.observe(record)
    assert not known.knew("y", 4)


def test_of_requests_that_look_alike_no_answer_proves_more_than_one_to_the_first() -> None:
    """The answer to the second may come after a third request."""
    alike = ask(matchtag=0, id=7)
    told = [msgspec.structs.replace(each, n=each.n + 8) for each in TOLD]
    known = Knowledge(is_routed=True)
    reply = answer(matchtag=0, id=7)
    for record in hand_made(alike, alike, reply, told, alike, reply):
        known.observe(record)
    assert not known.knew("y", 10)
    for record in hand_made(reply):
        known.observe(record)
    later = hand_made(*[[msgspec.structs.replace(each, n=each.n + 20) for each in ask()]], answer())
    for record in later:
        known.observe(record)
    assert known.knew("y", 10)


def test_another_turn_is_no_proof_of_a_module_that_has_a_process_of_its_own() -> None:
    """What goes to the process may wait there."""
    turns = (TOLD, made("y", "x", Event("said")), made("x", "y", Event("heard")))
    for is_process in (True, False):
        known = Knowledge()
        data = {"module": "y", "what": "started"} | ({"process": True} if is_process else {})
        known.observe(Record(0, 0.0, Kind.MODULE.value, "broker", data=data))
        for record in hand_made(*turns):
            known.observe(record)
        assert known.knew("y", 2) is not is_process
        again = Knowledge()
        again.take_up(known.state())
        assert again.knew("y", 2) is not is_process
        for record in hand_made(TOLD, ask(), answer()):
            known.observe(record)
        assert known.knew("y", 2)


def test_another_turn_is_no_proof_of_a_program_that_has_registered_a_service_by_a_request() -> None:
    """It is outside: what goes to it may wait in its socket while it sends."""
    turns = (TOLD, made("y", "x", Event("said")), made("x", "y", Event("heard")))
    for flags in (0, NORESPONSE):  # without a response a service of ours registers one more name
        registered = Request(topics.BROKER_REGISTER, {"service": "y"}, 1, flags=flags)
        known, again = Knowledge(), Knowledge()
        for record in hand_made(made("y", "broker", registered), *turns):
            known.observe(record)
        again.take_up(known.state())
        told = 4
        assert [each.knew("y", told) for each in (known, again)] == [bool(flags)] * 2


@pytest.mark.parametrize(
    ("steps", "awaits"),
    [
        ((), True),
        ((answer(),), True),
        ((answer(), SAID), True),
        ((answer(), TOLD_X), True),
        ((answer(), SAID, TOLD_X), False),
        ((answer(matchtag=2), SAID, TOLD_X), True),
    ],
)
def test_an_answer_is_awaited_until_the_turn_that_takes_it_is_over(
    steps: tuple[Trace, ...], awaits: bool
) -> None:
    known, again = Knowledge(), Knowledge()
    for record in hand_made(TOLD, ask(), *steps):
        known.observe(record)
    again.take_up(known.state())
    assert [each.awaits("x", 2) for each in (known, again)] == [awaits, awaits]


def test_no_answer_is_awaited_by_who_asks_for_none_or_a_stream_or_has_ended() -> None:
    known = Knowledge()
    ended = made_note(Kind.MODULE.value, "broker", module="x", what="crashed")
    for step in (ask(flags=NORESPONSE), ask(flags=STREAMING), ask(matchtag=0), [*ask(), ended]):
        for record in hand_made(step):
            known.observe(record)
        assert not known.awaits("x", 0)


def test_a_request_that_wants_no_answer_is_not_kept_and_of_others_a_bounded_number():
    known = Knowledge()
    for record in hand_made(ask(flags=NORESPONSE), *(ask(matchtag=n) for n in range(1, 2000))):
        known.observe(record)
    _, _, asked, _, calls = known.state()
    assert len(asked) == ASKED_MAX
    assert asked[-1][0] == ("y", "x", 1999)
    assert len(calls) == ASKED_MAX
    assert calls[-1][:2] == ("x", 1999)


# --- an allocation on a node that was drained


def forwarded(trace: Trace) -> Source:
    """The trace as a router shows it: each message once, without matchtags and flags."""
    receivers: dict[int, list[str]] = {}
    for record in trace:
        if record.kind == Kind.RECV:
            receivers.setdefault(record.ref, []).append(record.party)
    passed = [each for record in trace if (each := _passed(record, receivers)) is not None]
    shown = Shown(crossings=False, headers=False)
    return Source("a router's trace", shown, records_of(passed))


def _passed(record: Record, receivers: dict[int, list[str]]) -> Routed | Logged | None:
    if record.kind == Kind.EVENT and record.data is not None:
        return Logged(
            record.t, record.data["id"], record.data["name"], record.data["context"], record.t
        )
    if record.kind != Kind.SEND or record.n not in receivers:
        return None
    message = record.message
    if isinstance(message, (Request, Response)):
        message = msgspec.structs.replace(message, matchtag=0, flags=0)
    assert message is not None
    return Routed(record.t, record.party, tuple(receivers[record.n]), message)


def by_a_router(trace: Trace) -> set[str]:
    """The broken clauses of RFC 28, as a router shows the trace."""
    judgement = judge_trace(forwarded(trace), ALL_RULES, CLAUSES)
    return {each.clause for each in judgement.violations if each.clause.startswith("28.")}


def by_the_parties(trace: Trace) -> set[str]:
    """The same of a trace with receipts, without a bound of time."""
    found = judge(trace, ALL_RULES, cut=True, is_late=True).violations
    return {each.clause for each in found if each.clause.startswith("28.")}


Judged = Callable[[Trace], set[str]]
BOTH = pytest.mark.parametrize("judged", [by_a_router, by_the_parties])
FIRST = 1
"""The first allocation after the drain; it comes while nothing else happens."""


def crossing(trace: Trace) -> Trace:
    """The word of the drain comes after the job's request, and before its R is written."""
    asked = find_all(trace, topics.SCHED_ALLOC, "request")[FIRST]
    return with_r(move(trace, told(trace, "offline"), after=asked), on_rank(0), FIRST)


@BOTH
def test_the_first_allocation_after_a_drain_is_not_excused(judged: Judged):
    """28.offline.3: the scheduler received the job's request after it had heard of the drain."""
    trace = trace_of("drains")
    assert judged(trace) == set()
    assert OFFLINE in judged(with_r(trace, on_rank(0), FIRST))


@BOTH
def test_an_allocation_that_a_drain_crossed_is_excused(judged: Judged):
    assert OFFLINE not in judged(crossing(trace_of("drains")))


def test_a_second_proves_nothing_of_what_a_router_has_forwarded() -> None:
    """The process of the scheduler may have to wait for the processor."""
    trace = crossing(trace_of("drains"))
    at = commits_of_r(trace)[FIRST][0].n
    late = tuple(
        msgspec.structs.replace(each, t=each.t + (2.0 if each.n >= at else 0.0)) for each in trace
    )
    assert OFFLINE not in by_a_router(late)
    assert OFFLINE in {each.clause for each in judge(late, ALL_RULES, cut=True).violations}


@BOTH
def test_it_is_not_excused_if_the_scheduler_has_answered_anything_later(judged: Judged):
    trace = crossing(trace_of("drains"))
    offline = told(trace, "offline")
    request = Request("sched.resource-status", {}, 99, routes=("client",))
    response = Response("sched.resource-status", {}, 0, 99, routes=("client",))
    trace = insert(trace, offline, *made("client", "sched", request))
    asked = find(trace, "sched.resource-status", "request")
    trace = insert(trace, asked, *made("sched", "client", response))
    assert commits_of_r(trace)[FIRST][0].n > find(trace, "sched.resource-status", "response").n
    assert OFFLINE in judged(trace)
