"""RFC 21: what a start reads back, and when a state is told."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import format_eventlog
from flux_trio.messages import topics
from tests.support.eventlogs import event
from tests.support.manager_script import ManagerScript, key


def told(m: ManagerScript) -> list[str]:
    """The events that the journal told."""
    payloads: list[Any] = [each.payload for each in m.messages if each.topic == topics.JOB_JOURNAL]
    return [entry[2]["name"] for payload in payloads for entry in payload["events"]]


# --- what a start reads back


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
