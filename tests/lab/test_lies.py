"""What a party says that lies, message by message."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from flux_trio.lab import (
    AlsoAsked,
    AlsoSaid,
    ChangedKey,
    GrantForeign,
    JobPlan,
    NotStreaming,
    OwnerRequest,
    Plan,
    RemovedKey,
    SentMessage,
    run_plan,
)
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.consistency import OURS
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING

WHICH = SentMessage("job-exec.start", type="response")
FINISH = Response("job-exec.start", {"id": 1, "type": "finish", "data": {"status": 0}})
COMMIT = Request(topics.KVS_COMMIT, {"ops": [["put", "job.1.R", '{"version":1,"list":[1,2]}']]}, 7)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("data", {"id": 1, "type": "finish"}),
        ("data.status", {"id": 1, "type": "finish", "data": {}}),
        ("data.note", FINISH.payload),
        ("note.text", FINISH.payload),
        ("type.0", FINISH.payload),
    ],
)
def test_key_to_remove_may_be_a_path(key: str, expected: Any) -> None:
    (said,) = RemovedKey(WHICH, key).in_place_of(FINISH)
    assert said == msgspec.structs.replace(FINISH, payload=expected)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("version", '{"version":5,"list":[1,2]}'),
        ("list.1", '{"version":1,"list":[1,5]}'),
        ("new.part", '{"version":1,"list":[1,2],"new":{"part":5}}'),
        ("list.2", '{"version":1,"list":[1,2]}'),
        ("list.first", '{"version":1,"list":[1,2]}'),
    ],
)
def test_path_goes_into_arrays_and_texts_of_json(key: str, text: str) -> None:
    (said,) = ChangedKey(WHICH, f"ops.0.2.{key}", 5).in_place_of(COMMIT)
    assert said.payload == {"ops": [["put", "job.1.R", text]]}


def test_path_goes_into_values_of_fluxs_kvs() -> None:
    """They are texts of JSON in base64 (RFC 11)."""

    def commit(text: str) -> Request:
        data = base64.b64encode(text.encode()).decode()
        value = {"ver": 1, "type": "val", "data": data}
        ops = [{"key": "job.1.R", "flags": 0, "dirent": value}]
        return Request(topics.KVS_COMMIT, {"ops": ops}, 7)

    lie = ChangedKey(WHICH, "ops.0.dirent.data.list.1", 5)
    (said,) = lie.in_place_of(commit('{"version":1,"list":[1,2]}'))
    assert said == commit('{"version":1,"list":[1,5]}')


def test_what_is_changed_keeps_its_place() -> None:
    (said,) = ChangedKey(WHICH, "id", 2).in_place_of(FINISH)
    assert list(said.payload or ()) == ["id", "type", "data"]


def test_nobody_answers_a_request_that_is_also_said() -> None:
    said, other = AlsoSaid(WHICH, {"ops": []}).in_place_of(COMMIT)
    assert said == COMMIT
    assert other == Request(topics.KVS_COMMIT, {"ops": []}, flags=NORESPONSE)


def test_answer_that_is_also_said_may_have_another_topic() -> None:
    _, other = AlsoSaid(WHICH, topic="job-exec.kill").in_place_of(FINISH)
    assert other == msgspec.structs.replace(FINISH, topic="job-exec.kill")


def test_request_that_is_also_asked_comes_after_the_message() -> None:
    said = AlsoAsked(WHICH, topics.JOB_RAISE, {"id": 1}).in_place_of(FINISH)
    assert said == [FINISH, Request(topics.JOB_RAISE, {"id": 1}, flags=NORESPONSE)]


def test_other_flags_stay_without_that_of_a_stream() -> None:
    hello = Request(topics.SCHED_HELLO, None, 1, STREAMING | NORESPONSE)
    assert NotStreaming(WHICH).in_place_of(hello) == [
        msgspec.structs.replace(hello, flags=NORESPONSE)
    ]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "no object",
        {},
        {"ops": 5},
        {"ops": [5, [], ["put", 5, "{}"], ["put", "job.1.R", "no R"]]},
    ],
)
def test_commit_of_a_client_that_stores_no_r_is_sent_as_it_is(payload: Any) -> None:
    commit = Request(topics.KVS_COMMIT, payload, 7)
    assert GrantForeign(SentMessage(topics.KVS_COMMIT)).in_place_of(commit) == [commit]


@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("topic", [topics.RESOURCE_ACQUIRE, topics.INFO_WATCH])
def test_every_property_holds_after_a_stream_has_ended_early(
    topic: str, nth: int, depth: Depth
) -> None:
    """A scheduler acquires its resources again, and who watches takes the last line as the end."""
    asked = (OwnerRequest(0.5, "watch"), OwnerRequest(0.8, "down"), OwnerRequest(3.0, "up"))
    lie = NotStreaming(SentMessage(topic, nth, "response"))
    plan = Plan(1, jobs=(JobPlan(), JobPlan()), actions=asked, faults=(lie,), depth=depth)
    outcome = run_plan(plan, properties=OURS)
    assert outcome.struck == (lie,)
    assert outcome.problems == ()


STARTED = SentMessage("job-exec.start", type="response", party="job-exec")
GRANTED = SentMessage(topics.SCHED_ALLOC, type="response", party="sched")
SHOWN = SentMessage(topics.RESOURCE_STATUS, type="response", party="resource")


@pytest.mark.parametrize(
    ("which", "topic", "payload"),
    [
        (STARTED, topics.SCHED_FREE, {"id": 1}),
        (STARTED, topics.SCHED_HELLO, {}),
        (STARTED, topics.RESOURCE_DRAIN, {"targets": "0"}),
        (GRANTED, topics.EXEC_HELLO, {}),
        (GRANTED, topics.KVS_COMMIT, {}),
        (GRANTED, topics.SCHED_HELLO, {}),
        (GRANTED, topics.RESOURCE_DOWN, {"targets": "0"}),
        (GRANTED, topics.RESOURCE_EXCLUDE, {"targets": "0"}),
        (SHOWN, topics.RESOURCE_ACQUIRE, {}),
        (SHOWN, topics.SCHED_HELLO, {}),
        (SHOWN, topics.SCHED_ALLOC, {"id": 1}),
    ],
)
def test_request_that_nobody_has_to_answer_breaks_clauses_of_the_liar_alone(
    which: SentMessage, topic: str, payload: dict[str, Any]
) -> None:
    lie = AlsoAsked(which, topic, payload)
    jobs = (JobPlan(run=2.0), JobPlan(at=1.0, nnodes=2, run=3.0))
    outcome = run_plan(Plan(3, 2, jobs=jobs, faults=(lie,)), properties=OURS)
    assert outcome.struck == (lie,)
    assert outcome.problems == ()


@pytest.mark.parametrize(
    ("which", "key"),
    [
        (SentMessage(topics.SCHED_READY), "more"),
        (SentMessage(topics.EXEC_HELLO), "more"),
        (SentMessage("job-exec.start", 2, "response"), "data.more"),
        (SentMessage("job-exec.start", 3, "response"), "data.more"),
        (SentMessage("job-exec.start", 1, "request"), "more"),
    ],
)
def test_key_that_nobody_knows_breaks_nothing(which: SentMessage, key: str) -> None:
    """The RFCs say which keys there have to be, and forbid no other one."""
    plan = Plan(1, jobs=(JobPlan(),), faults=(ChangedKey(which, key, 1),))
    outcome = run_plan(plan, properties=OURS)
    assert outcome.never_struck == ()
    assert outcome.problems == outcome.excused == ()
