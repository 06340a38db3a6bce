"""RFC 21: what ends each state of a job, what a start reads back, and when a state is told."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import format_eventlog
from flux_trio.messages import topics
from flux_trio.protocols import HookAnswer, JobState, SetPriority
from tests.support.asking import GUEST_USERID, asked_by_guest
from tests.support.eventlogs import event
from tests.support.manager_script import ANNOTATE, DENY, PLUGIN, PRIORITIZE, ManagerScript, key

MEMO = {"id": 1, "memo": {"a": 1}}


def told(m: ManagerScript) -> list[str]:
    """The events that the journal told."""
    payloads: list[Any] = [each.payload for each in m.messages if each.topic == topics.JOB_JOURNAL]
    return [entry[2]["name"] for payload in payloads for entry in payload["events"]]


# --- what ends a state


def test_priority_is_left_by_a_priority_event_alone() -> None:
    """21.criteria.1, 21.states.3: a user sees that the job waits for its priority."""
    m = ManagerScript(answers={PRIORITIZE: HookAnswer()}, peers=True)
    m.submit(1)
    m.ask(topics.JOB_MEMO, MEMO)
    assert m.names(1)[-2:] == ["depend", "memo"]
    assert m.state(1) == JobState.PRIORITY
    assert m.stats()["states"]["priority"] == 1
    assert m.put(SetPriority(1, 9, PLUGIN)) == ["sched.alloc 1"]
    assert m.names(1)[-1] == "priority"


def test_sched_is_left_by_alloc_and_run_by_finish(m: ManagerScript) -> None:
    """21.criteria.6, 21.states.4, 21.states.5: by an event in the eventlog, and by no other."""
    m.submit(1)
    m.alloc(1, ANNOTATE, annotations={"sched": {"a": 1}})
    m.ask(topics.JOB_MEMO, MEMO)
    assert m.state(1) == JobState.SCHED
    assert m.alloc(1) == ["job-exec.start 1"]
    assert m.names(1)[-1] == "alloc"
    m.execute(1, "start")
    assert m.state(1) == JobState.RUN
    m.execute(1, "finish")
    assert m.names(1)[-3:] == ["alloc", "start", "finish"]
    assert m.state(1) == JobState.CLEANUP


def test_resources_are_with_the_scheduler_before_clean(m: ManagerScript) -> None:
    """21.states.6"""
    m.running(1)
    m.execute(1, "finish")
    m.execute(1, "release final")
    assert m.names(1)[-2:] == ["finish", "release"]
    m.freed(1)
    assert m.names(1)[-2:] == ["free", "clean"]


def test_every_job_ends_in_inactive(m: ManagerScript) -> None:
    """21.criteria.3: one that is over, one that is canceled while it waits, and one denied."""
    m.running(1)
    m.execute(1, "finish", "release final")
    m.freed(1)
    m.submit(2)
    m.raise_(2)
    m.submit(3)
    m.alloc(3, DENY)
    assert [m.state(jobid) for jobid in (1, 2, 3)] == [JobState.INACTIVE] * 3


def test_an_exception_of_severity_0_alone_ends_a_job(m: ManagerScript) -> None:
    """21.exceptions.2, 21.exceptions.3"""
    m.running(1)
    for severity in range(1, 8):
        m.raise_(1, severity)
    assert m.state(1) == JobState.RUN
    m.raise_(1, 0)
    assert m.state(1) == JobState.CLEANUP


def test_an_exception_says_who_has_raised_it_and_why(m: ManagerScript) -> None:
    """21.events.34, 21.events.35: the note may be empty; a guest is named."""
    m.submit(1, userid=GUEST_USERID)
    exception = {"id": 1, "severity": 3, "type": "oops"}
    m.put(asked_by_guest(topics.JOB_RAISE, exception))
    expected = {"type": "oops", "severity": 3, "note": "", "userid": GUEST_USERID}
    assert m.context(1, "exception") == expected


# --- what a start reads back


def test_a_job_is_after_a_start_where_it_was(m: ManagerScript) -> None:
    """21.criteria.8: in SCHED, in RUN and in CLEANUP."""
    m.submit(1)
    m.running(2)
    m.running(3)
    m.execute(3, "finish")
    assert m.restarted().stats()["states"] == m.stats()["states"]


@pytest.mark.parametrize("first", [1, 0], ids=["none", "two"])
def test_an_eventlog_begins_with_one_submit(m: ManagerScript, first: int) -> None:
    """21.events.3, 21.states.1: another is not a job's."""
    m.submit(1)
    submit, *others = m.log(1)
    log = others if first else [submit, submit, *others]
    m.kvs.commit(["put", f"{key(1)}.eventlog", format_eventlog(log)])
    assert "moved to job-lost+found" in " ".join(m.restarted().began)


def test_events_and_keys_of_others_are_tolerated(m: ManagerScript) -> None:
    """21.events.1, 21.events.2: jobs that have them are read back."""
    m.submit(1, 2)
    foreign = {
        1: event("solar-eclipse", a=1),
        2: event("urgency", urgency=16, userid=1, mood="good"),
    }
    for jobid, each in foreign.items():
        m.kvs.commit(["append", f"{key(jobid)}.eventlog", format_eventlog([each])])
    states = m.restarted().stats()["states"]
    assert states["sched"] + states["priority"] == 2


# --- when a state is told


def test_what_is_told_is_in_the_eventlog(m: ManagerScript) -> None:
    """21.criteria.7: each event, in the same order."""
    m.ask(topics.JOB_JOURNAL, {}, streaming=True)
    m.running(1)
    m.execute(1, "finish", "release final")
    m.freed(1)
    assert told(m) == m.names(1)


def test_cleanup_and_inactive_are_told_when_their_events_are_durable() -> None:
    """21.sync.1, 21.sync.2: whoever hears of a state finds all of it in the KVS."""
    m = ManagerScript(commits_wait=True, peers=True)
    m.ask(topics.JOB_JOURNAL, {}, streaming=True)
    m.running(1)
    while m.commits:
        m.commit()
    m.messages.clear()
    for step, names in (
        (lambda: m.execute(1, "finish"), ["finish"]),
        (lambda: m.execute(1, "release final"), ["release"]),
        (lambda: m.freed(1), ["free", "clean"]),
    ):
        assert step() == [f"commit 1: {' '.join(names)}"]
        m.commit()
        assert told(m)[-len(names) :] == names == m.names(1)[-len(names) :]
