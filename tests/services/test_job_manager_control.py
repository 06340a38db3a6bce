"""What users ask of the job manager, and its refusals; the journal."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flux_trio.messages import topics
from flux_trio.protocols import ACTIVE, JobState, PluginInterests
from tests.support.asking import GUEST_USERID, asked, asked_by_guest
from tests.support.manager_script import ANNOTATE, ManagerScript

RAISE = "job-manager.raise"
URGENCY = "job-manager.urgency"


@pytest.fixture
def m() -> ManagerScript:
    """Job 1 is the guest's and pending, job 2 somebody else's; 3 runs; 4 is inactive."""
    m = ManagerScript(peers=True)
    m.submit(1, userid=GUEST_USERID)
    m.submit(2, userid=GUEST_USERID + 1)
    m.running(3, userid=GUEST_USERID + 1)
    m.submit(4)
    m.raise_(4)
    return m


def refusal(did: list[str]) -> str:
    """The error of the only answer."""
    (line,) = did
    return line.split(" -> ")[1]


# --- raise


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"id": 9, "severity": 0, "type": "x"}, "ENOENT unknown job id"),
        ({"id": 4, "severity": 0, "type": "x"}, "ENOENT job is inactive"),
        ({"id": 1, "severity": 8, "type": "x"}, "EINVAL invalid exception severity"),
        ({"id": 1, "severity": -1, "type": "x"}, "EINVAL invalid exception severity"),
        ({"id": 1, "severity": 0, "type": ""}, "EINVAL invalid exception type"),
        ({"id": 1, "severity": 0, "type": "a b"}, "EINVAL invalid exception type"),
    ],
)
def test_exception_that_cannot_be_raised_says_why(
    m: ManagerScript, payload: dict[str, Any], error: str
) -> None:
    """21.exceptions.1: among others, severities are 0 to 7."""
    assert refusal(m.ask(RAISE, payload)) == error


def test_guest_raises_exceptions_on_own_jobs_alone(m: ManagerScript) -> None:
    """21.events.35: and is named in the event."""
    payload = {"id": 1, "severity": 0, "type": "cancel", "note": "mine"}
    m.put(asked_by_guest(RAISE, payload))
    assert m.context(1, "exception")["userid"] == GUEST_USERID
    error = refusal(m.put(asked_by_guest(RAISE, payload | {"id": 2})))
    assert error == "EPERM guests can only raise exceptions on their own jobs"


def test_exceptions_are_raised_on_all_jobs_of_a_user_in_some_states(m: ManagerScript) -> None:
    payload = {"severity": 0, "type": "cancel", "states": int(ACTIVE)}
    mine = payload | {"userid": GUEST_USERID}
    answer = "job-manager.raiseall -> {'count': 1, 'errors': 0}"
    dry = asked_by_guest("job-manager.raiseall", mine | {"dry_run": True})
    assert m.put(dry) == [answer]
    assert m.put(asked_by_guest("job-manager.raiseall", mine)) == [
        "event job-exception 1 cancel 0",
        answer,
        "sched.cancel 1",
    ]
    error = refusal(m.put(asked_by_guest("job-manager.raiseall", payload)))
    assert error == "EPERM guests can only raise exceptions on their own jobs"
    run = payload | {"states": int(JobState.RUN)}
    assert m.ask("job-manager.raiseall", run)[-1].endswith("{'count': 1, 'errors': 0}")
    assert m.state(3) == JobState.CLEANUP
    assert m.state(2) == JobState.SCHED


# --- urgency


@pytest.mark.parametrize(
    ("jobid", "urgency", "error"),
    [
        (1, 32, "EINVAL urgency value is out of range"),
        (1, -1, "EINVAL urgency value is out of range"),
        (9, 16, "ENOENT unknown job"),
        (4, 16, "ENOENT job is inactive"),
        (3, 16, "EINVAL urgency cannot be changed once resources are allocated"),
    ],
)
def test_urgency_that_cannot_be_set_says_why(
    m: ManagerScript, jobid: int, urgency: int, error: str
) -> None:
    """21.events.20: among others, urgencies are 0 to 31."""
    assert refusal(m.urgency(jobid, urgency)) == error


def test_guest_may_lower_the_urgency_of_own_jobs(m: ManagerScript) -> None:
    """21.events.20: and is named in the event."""
    m.put(asked_by_guest(URGENCY, {"id": 1, "urgency": 5}))
    assert m.context(1, "urgency") == {"userid": GUEST_USERID, "urgency": 5}
    raised = asked_by_guest(URGENCY, {"id": 1, "urgency": 17})
    assert refusal(m.put(raised)) == "EINVAL guests can only adjust urgency <= default"
    other = asked_by_guest(URGENCY, {"id": 2, "urgency": 5})
    assert refusal(m.put(other)) == "EPERM guests can only reprioritize their own jobs"
    m.urgency(1, 20)  # by the owner: the guest may go up to where it was set
    m.put(asked_by_guest(URGENCY, {"id": 1, "urgency": 18}))
    assert m.context(1, "urgency")["urgency"] == 18


# --- who may


@pytest.mark.parametrize(
    "topic",
    [
        topics.JOB_SUBMIT,
        topics.JOB_QUEUE_START,
        topics.JOB_GETINFO,
        topics.JOB_JOURNAL,
        topics.SCHED_HELLO,
        topics.SCHED_READY,
        topics.EXEC_HELLO,
    ],
)
def test_owner_only_requests_are_refused_to_guests(m: ManagerScript, topic: str) -> None:
    did = m.put(asked_by_guest(topic, {}))
    assert refusal(did) == "EPERM Request requires owner credentials"


@pytest.mark.parametrize("topic", [topics.JOB_STATS, topics.JOB_QUEUE_STATUS])
def test_anybody_may_look(m: ManagerScript, topic: str) -> None:
    (line,) = m.put(asked_by_guest(topic))
    assert line.startswith(f"{topic} -> {{")


def test_stats_count_jobs_and_requests(m: ManagerScript) -> None:
    stats = m.stats()
    requests = stats.pop("requests")
    assert (requests[topics.SCHED_READY], requests[topics.JOB_DRAIN]) == (1, 0)
    queues = {queue: +Counter(states) for queue, states in stats.pop("queues").items()}
    assert queues == {"": {"sched": 2, "run": 1}}
    assert sum(stats.pop("alloc_seconds")["counts"]) == 1
    assert stats == {
        "inactive_jobs": 1,
        "states": {
            "new": 0,
            "depend": 0,
            "priority": 0,
            "sched": 2,
            "run": 1,
            "cleanup": 0,
            "inactive": 1,
        },
        "sched": {"link": "ready", "waiting": 0, "outstanding": 3},
        "exec": {"service": "job-exec"},
        "housekeeping": {"running": {}},
    }


# --- journal


def told(m: ManagerScript) -> list[list[Any]]:
    """What the journal has told since, one list a response."""
    batches = [r.payload["events"] for r in m.messages if r.topic == topics.JOB_JOURNAL]
    m.messages.clear()
    return [[(jobid, place, event["name"]) for jobid, place, event in each] for each in batches]


def test_journal_begins_empty_and_tells_each_turn_once() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.ask(topics.JOB_JOURNAL, {}, streaming=True)
    assert told(m) == [[]]
    m.alloc(1, ANNOTATE, annotations={"sched": {"a": 1}})
    m.alloc(1)
    m.execute(1, "start", "finish")
    assert told(m) == [
        [(1, -1, "annotations")],
        [(1, 4, "alloc")],
        [(1, 5, "start"), (1, 6, "finish")],
    ]


def test_journal_tells_what_is_durable_alone() -> None:
    m = ManagerScript(commits_wait=True, peers=True)
    m.ask(topics.JOB_JOURNAL, {}, streaming=True)
    told(m)
    m.submit(1)
    assert told(m) == []
    m.commit()
    assert told(m) == [[(1, 0, "submit"), (1, 1, "validate"), (1, 2, "depend"), (1, 3, "priority")]]


def test_follower_that_allows_some_events_is_told_those() -> None:
    m = ManagerScript(peers=True)
    m.ask(topics.JOB_JOURNAL, {"allow": {"alloc": 1, "clean": 1}}, streaming=True)
    m.running(1)
    assert told(m) == [[], [(1, 4, "alloc")]]


def test_journal_of_a_follower_that_left_goes_to_nobody() -> None:
    """6.disconnect.2: not even what waits for a commit."""
    m = ManagerScript(commits_wait=True)
    m.put(asked(topics.JOB_JOURNAL, {}, by="follower", streaming=True))
    m.put(asked(topics.JOB_JOURNAL, {}, by="stays", streaming=True))
    m.submit(1)
    m.gone("follower")
    before = len(m.messages)
    while m.commits:
        m.commit()
    told = {each.routes[0] for each in m.messages[before:] if each.topic == topics.JOB_JOURNAL}
    assert told == {"stays"}


def test_journal_needs_the_streaming_flag() -> None:
    m = ManagerScript()
    error = refusal(m.put(asked(topics.JOB_JOURNAL)))
    assert error == "EPROTO job-manager.journal needs the streaming flag"


def test_every_event_is_noted_for_the_trace(m: ManagerScript) -> None:
    """21.criteria.7: what the eventlogs have, in the same order."""
    noted = [note.data["name"] for note in m.notes if note.data.get("id") == 3]
    assert noted == m.names(3)


def test_events_are_not_noted_while_the_trace_has_no_reader() -> None:
    m = ManagerScript()
    m.submit(1)
    m.put(PluginInterests(notes=False))
    m.submit(2)
    m.put(PluginInterests(notes=True))
    m.submit(3)
    assert {note.data["id"] for note in m.notes if "id" in note.data} == {1, 3}
