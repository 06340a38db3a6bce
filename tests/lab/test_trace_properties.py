"""What a service has told is so, and stays so; each property finds what breaks it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import pytest

from flux_trio.cores.sched.core import SchedCore
from flux_trio.lab import (
    AlsoSaid,
    JobPlan,
    Linger,
    NodesDown,
    NoObject,
    Plan,
    RestartInstance,
    SentMessage,
    Shrink,
    When,
    WrongRequest,
    run_plan,
)
from flux_trio.lab.properties.trace_properties import (
    OVER_TRACE,
    commits_are_answered_in_order,
    each_request_has_one_last_answer,
    no_job_id_is_given_again,
    the_journal_tells_each_event_once,
    the_journal_tells_of_durable_events,
    what_was_lost_is_not_granted,
)
from flux_trio.lab.stories.running import play
from flux_trio.messages import Request, Response, end_of_stream, respond_stream, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Kind, Record

STARTED = When("job-exec.start", type="response")
PLAN = Plan(1, jobs=(JobPlan(), JobPlan(run=9.0)), faults=(RestartInstance(STARTED),))
R_STORED = When(topics.KVS_COMMIT, side="send", party="sched")


def traced(plan: Plan = PLAN) -> list[Record]:
    return play(plan).trace


def topic_of(record: Record) -> str:
    return getattr(record.message, "topic", "")


def test_world_that_is_started_again_keeps_the_properties() -> None:
    trace = traced()
    assert [each(trace) for each in OVER_TRACE] == [""] * len(OVER_TRACE)


def test_event_that_is_told_before_its_commit_is_answered_is_found() -> None:
    def is_answer(record: Record) -> bool:
        return (record.kind, record.party, topic_of(record)) == (
            Kind.RECV,
            topics.JOB_MANAGER,
            topics.KVS_COMMIT,
        )

    trace = traced()
    assert any(map(is_answer, trace))
    said = the_journal_tells_of_durable_events([each for each in trace if not is_answer(each)])
    assert "tells of validate of" in said
    assert "which is not stored" in said


def test_event_that_is_told_twice_or_left_out_is_found() -> None:
    def is_told(record: Record, name: str) -> bool:
        return (record.kind, record.party, topic_of(record)) == (
            Kind.SEND,
            topics.JOB_MANAGER,
            topics.JOB_JOURNAL,
        ) and name in str(record.message)

    trace = traced(Plan(1, jobs=(JobPlan(),)))
    n = next(n for n, each in enumerate(trace) if is_told(each, "'alloc'"))
    twice = the_journal_tells_each_event_once([*trace[: n + 1], *trace[n:]])
    assert re.search("tells job-list of event 4 of .+, alloc, after event 4", twice)
    gap = the_journal_tells_each_event_once([*trace[:n], *trace[n + 1 :]])
    assert re.search("tells job-list of event 5 of .+, start, after event 3", gap)
    chosen = Request(topics.JOB_JOURNAL, {"allow": {"alloc": 1}}, routes=("job-list",))
    asked = next(
        each
        for each in trace
        if (each.kind, each.party) == (Kind.RECV, topics.JOB_MANAGER)
        and getattr(each.message, "sender", "") == "job-list"
        and topic_of(each) == topics.JOB_JOURNAL
    )
    matchtag = getattr(asked.message, "matchtag", 0)
    some = msgspec.structs.replace(asked, message=_tagged(chosen, matchtag))
    trace[trace.index(asked)] = some
    assert the_journal_tells_each_event_once([*trace[:n], *trace[n + 1 :]]) == ""


def commits(*answered: int, errnum: int = 0, left_after: int = 0) -> Sequence[Record]:
    """Two commits of one sender, answered in this order; `errnum` is of the first answer."""
    commit = Request(topics.KVS_COMMIT, {"ops": []}, routes=("job-manager",))
    asked = [Record(n, 0.0, Kind.RECV, topics.KVS, message=_tagged(commit, n)) for n in (1, 2)]
    left = Request(topics.disconnect_of(topics.KVS), routes=("job-manager",))
    if left_after:
        asked.insert(left_after, Record(3, 0.0, Kind.RECV, topics.KVS, message=left))
    answers = [
        Response(
            topics.KVS_COMMIT, {}, errnum if n == answered[0] else 0, n, routes=("job-manager",)
        )
        for n in answered
    ]
    return [*asked, *(Record(9, 0.0, Kind.SEND, topics.KVS, message=each) for each in answers)]


def _tagged(request: Request, matchtag: int) -> Request:
    return msgspec.structs.replace(request, matchtag=matchtag)


def test_commit_that_overtakes_an_earlier_one_of_its_sender_is_found() -> None:
    assert "answers a later commit of job-manager" in commits_are_answered_in_order(commits(2, 1))
    assert commits_are_answered_in_order(commits(1, 2)) == ""
    assert commits_are_answered_in_order(commits(2, 1, errnum=28)) == ""  # it was refused at once
    assert commits_are_answered_in_order(commits(2, left_after=1)) == ""  # the first has no reader


def test_second_answer_to_a_request_is_found() -> None:
    """A request that comes twice is answered twice."""
    assert each_request_has_one_last_answer(commits(1, 2)) == ""
    twice = [*commits(2, 1, errnum=28), commits(1)[-1]]
    assert each_request_has_one_last_answer(twice) == (
        "record 9 is a second answer to kvs.commit of job-manager"
    )
    again = Record(9, 0.0, Kind.RECV, topics.KVS, message=twice[0].message)
    assert each_request_has_one_last_answer([again, *twice]) == ""
    for module in ("job-manager", topics.KVS):
        gone = Record(9, 0.0, Kind.MODULE, "broker", data={"what": "removed", "module": module})
        assert each_request_has_one_last_answer([*twice[:-1], gone, twice[-1]]) == ""
    assert each_request_has_one_last_answer(twice[2:]) == ""  # the requests are not in the trace


def test_request_that_is_not_answered_is_found() -> None:
    assert each_request_has_one_last_answer(commits(2)) == (
        "kvs has not answered record 1, kvs.commit of job-manager"
    )
    assert each_request_has_one_last_answer(commits(left_after=2)) == ""  # nobody waits


def test_stream_has_one_end() -> None:
    request = Request(topics.SCHED_HELLO, {}, 1, STREAMING, routes=("sched",))
    event, end = respond_stream(request, {}), end_of_stream(request)

    def told(*answers: Response | None) -> str:
        asked = Record(1, 0.0, Kind.RECV, topics.JOB_MANAGER, message=request)
        sent = [Record(2, 0.0, Kind.SEND, topics.JOB_MANAGER, message=each) for each in answers]
        return each_request_has_one_last_answer([asked, *sent])

    assert told(event, event, end) == ""
    assert (
        told(event, end, end) == "record 2 is a second answer to job-manager.sched-hello of sched"
    )


def test_greatest_id_that_is_too_small_is_found() -> None:
    trace = traced()
    last = max(n for n, each in enumerate(trace) if topic_of(each) == topics.JOB_GETINFO)
    told = next(
        n
        for n in range(last, -1, -1)
        if topic_of(trace[n]) == topics.JOB_GETINFO and trace[n].kind == Kind.SEND
    )
    assert isinstance(trace[told].message, Response)
    wrong = msgspec.structs.replace(trace[told].message, payload={"max_jobid": 1})
    trace[told] = msgspec.structs.replace(trace[told], message=wrong)
    assert "says that no id is above 1" in no_job_id_is_given_again(trace)


@pytest.mark.parametrize("lost", ["down", "shrink"])
def test_grant_of_lost_nodes_is_found(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    monkeypatch.setattr(SchedCore, "_revoke", lambda *_: None)
    nodes = NodesDown((0,), R_STORED) if lost == "down" else Shrink((0,), R_STORED)
    faults = (Linger("sched", R_STORED, 0.5), nodes)
    found = [
        what_was_lost_is_not_granted(traced(Plan(seed, 2, jobs=(JobPlan(),), faults=faults)))
        for seed in range(10)
    ]
    assert any("ranks [0], which were lost before" in each for each in found)
    assert "" in found  # in other orders the grant came first


def test_lie_about_resources_is_not_read() -> None:
    lie = NoObject(SentMessage(topics.RESOURCE_ACQUIRE, type="response", party="resource"))
    plan = Plan(1, jobs=(JobPlan(),), faults=(lie,))
    assert run_plan(plan, properties=OVER_TRACE).problems == ()


def test_client_that_asks_wrongly_for_the_journal_is_not_read() -> None:
    asked = WrongRequest(When(topics.SCHED_ALLOC), topics.JOB_JOURNAL, {"allow": 5})
    plan = Plan(1, jobs=(JobPlan(),), faults=(asked,))
    assert run_plan(plan, properties=OVER_TRACE).problems == ()


def test_answer_of_another_party_does_not_count_as_one_about_ids() -> None:
    lie = AlsoSaid(
        SentMessage(topics.SCHED_ALLOC, type="response"), {"id": []}, topics.INGEST_SUBMIT
    )
    plan = Plan(1, jobs=(JobPlan(),), faults=(lie,))
    assert run_plan(plan, properties=OVER_TRACE).problems == ()
