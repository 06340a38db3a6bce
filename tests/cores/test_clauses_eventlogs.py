"""RFC 16 and RFC 18: how the job manager writes eventlogs."""

from __future__ import annotations

from typing import Any

from flux_trio.formats import format_event, parse_eventlog
from flux_trio.messages import topics
from flux_trio.protocols import SetPriority
from tests.support.eventlogs import event
from tests.support.manager_script import ManagerScript, key


def test_an_eventlog_is_only_appended_to(m: ManagerScript) -> None:
    """16.schema.4, 18.format.4: nothing that it or others have written is lost or changed."""
    log = f"{key(1)}.eventlog"
    m.submit(1)
    m.kvs.commit(["append", log, format_event(event("memo", note="of somebody else"))])
    before = m.kvs.value(log) or ""
    m.raise_(1, 3)
    after = m.kvs.value(log) or ""
    assert after.startswith(before)
    assert [each.name for each in parse_eventlog(after.removeprefix(before))] == ["exception"]


def test_each_append_is_of_whole_events(m: ManagerScript) -> None:
    """18.format.3: those who watch the log never see a part of a line."""
    m.running(1)
    m.execute(1, "finish", "release final")
    commits: list[Any] = [each for each in m.kvs_asked if each.topic == topics.KVS_COMMIT]
    ops = [op for each in commits for op in each.payload["ops"]]
    appended = [op[2] for op in ops if op[1] == f"{key(1)}.eventlog"]
    assert len(appended) > 1
    assert {text[:1] + text[-2:] for text in appended} == {"{}\n"}


Ended = tuple[float, str, str | None]
"""Timestamp, name, and the type in the context of an exception."""


def ends_told(m: ManagerScript, jobid: int) -> list[Ended]:
    """The last two events of a job that the journal tells."""
    told = [
        each for r in m.messages if r.topic == topics.JOB_JOURNAL for each in r.payload["events"]
    ]
    events = [event for of, _, event in told if of == jobid][-2:]
    return [(e["timestamp"], e["name"], e.get("context", {}).get("type")) for e in events]


def ends_logged(m: ManagerScript, jobid: int) -> list[Ended]:
    """The last two events of its eventlog."""
    events = m.log(jobid)[-2:]
    return [(e.timestamp, e.name, (e.context or {}).get("type")) for e in events]


def test_jobs_that_end_together_have_the_same_events(m: ManagerScript) -> None:
    """Two jobs end in one turn, for one reason; another job has ended before, for another."""
    m.submit(1, 2, 3)
    m.ask(topics.JOB_JOURNAL, {}, streaming=True)
    m.raise_(3, 0, "timeout")
    first = m.now
    m.wait(1.0)
    m.ask(topics.JOB_RAISEALL, {"type": "cancel", "severity": 0, "states": 0x7F})
    for jobid, at, kind in (
        (1, first + 1.0, "cancel"),
        (2, first + 1.0, "cancel"),
        (3, first, "timeout"),
    ):
        expected = [(at, "exception", kind), (at, "clean", None)]
        assert ends_logged(m, jobid) == ends_told(m, jobid) == expected


def test_the_same_event_in_a_later_turn_has_its_own_time(m: ManagerScript) -> None:
    m.submit(1, 2)
    m.put(SetPriority(1, 42, "multifactor"))
    first = m.now
    m.wait(1.0)
    m.put(SetPriority(2, 42, "multifactor"))
    assert [(each.timestamp, each.context) for each in (m.log(1)[-1], m.log(2)[-1])] == [
        (first, {"priority": 42}),
        (first + 1.0, {"priority": 42}),
    ]
