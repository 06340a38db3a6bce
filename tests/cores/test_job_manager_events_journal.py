"""flux-core's journal: a backlog of each job, then event by event, told once each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flux_trio.config import Config
from flux_trio.cores.job_manager.jobs import events_journal
from flux_trio.messages import Errno, topics
from tests.support.asking import asked
from tests.support.manager_script import ANNOTATE, ManagerScript

PENDING = ["submit", "validate", "depend", "priority"]
RUNS = ["alloc", "start"]
ENDS = ["finish", "release", "free", "clean"]
OVER = (-1, [])
LARGEST = 1 << 62  # a job id that JSON numbers of other languages do not have


def follow(m: ManagerScript, by: str = "client", tag: int = 1, **wanted: Any) -> None:
    m.put(asked(topics.JOB_EVENTS, wanted, by=by, tag=tag, streaming=True))


def responses(m: ManagerScript, by: str = "client") -> list[Any]:
    """What the follower was told since."""
    told = [each for each in m.messages if each.topic == topics.JOB_EVENTS]
    m.messages.clear()
    return [each for each in told if each.routes == (by,)]


def told(m: ManagerScript, by: str = "client") -> list[tuple[int, list[str]]]:
    return [
        (each.payload["id"], [event["name"] for event in each.payload["events"]])
        for each in responses(m, by)
    ]


def end(m: ManagerScript, jobid: int) -> None:
    m.execute(jobid, "finish", "release final")


@pytest.mark.parametrize("edition", ["classic", "current"])
def test_backlog_comes_first_and_then_one_event_a_response(edition: str) -> None:
    m = ManagerScript(peers=True, config=Config(edition=edition))
    m.running(1)
    follow(m)
    assert told(m) == [(1, PENDING + RUNS), OVER]
    m.submit(LARGEST)
    assert told(m) == [(LARGEST, [name]) for name in PENDING]
    end(m, 1)
    m.freed(1)
    assert told(m) == [(1, [name]) for name in ENDS]


def test_jobs_that_have_ended_are_told_to_who_wants_all() -> None:
    m = ManagerScript(peers=True)
    m.running(1)
    end(m, 1)
    m.freed(1)
    m.submit(2)
    follow(m, full=True)
    assert told(m) == [(2, PENDING), (1, PENDING + RUNS + ENDS), OVER]
    follow(m, tag=2)
    assert told(m) == [(2, PENDING), OVER]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, PENDING),
        ({"allow": {"depend": 1, "priority": 1}}, ["depend", "priority"]),
        ({"deny": {"submit": 1, "depend": 1}}, ["validate", "priority"]),
        ({"allow": {"depend": 1, "priority": 1}, "deny": {"depend": 1}}, ["priority"]),
        ({"allow": {}}, []),
    ],
)
def test_names_choose_of_the_backlog_and_of_what_comes(
    wanted: dict[str, Any], names: list[str]
) -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    follow(m, **wanted)
    m.submit(2)
    assert told(m) == [(1, names), OVER, *((2, [name]) for name in names)]


def test_jobspec_and_r_come_with_the_events_that_bring_them_without_secrets() -> None:
    m = ManagerScript(peers=True, config=Config(edition="current"))
    follow(m)
    m.submit(1, environment={"SECRET": "x"}, duration=60.0)
    m.alloc(1)
    by_name = {
        event["name"]: each.payload for each in responses(m) for event in each.payload["events"]
    }
    jobspec, r = by_name["submit"]["jobspec"], by_name["alloc"]["R"]
    assert jobspec["attributes"]["system"]["duration"] == 60.0
    assert "environment" not in jobspec["attributes"]["system"]
    assert r["execution"]["R_lite"]
    assert [name for name, each in by_name.items() if "R" in each] == ["alloc"]
    assert [name for name, each in by_name.items() if "jobspec" in each] == ["submit"]
    follow(m, by="another")
    (backlog, _over) = responses(m, "another")
    assert (backlog.payload["jobspec"], backlog.payload["R"]) == (jobspec, r)


def test_annotations_are_told_as_an_event() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    follow(m)
    m.alloc(1, ANNOTATE, annotations={"sched": {"queue": "x"}})
    *_, (event,) = (each.payload["events"] for each in responses(m))
    assert event["name"] == "annotations"
    assert event["context"] == {"annotations": {"sched": {"queue": "x"}}}


def test_backlog_has_the_jobspec_with_its_updates() -> None:
    m = ManagerScript(peers=True)
    m.submit(1, duration=60.0)
    m.post(1, "jobspec-update", **{"attributes.system.duration": 120.0})
    follow(m)
    (backlog, _over) = responses(m)
    assert backlog.payload["jobspec"]["attributes"]["system"]["duration"] == 120.0


def test_what_happens_while_the_backlog_is_read_is_told_once() -> None:
    """The eventlogs that are read have it already."""
    m = ManagerScript(peers=True)
    m.submit(1)
    m.put(
        asked(topics.JOB_EVENTS, {}, by="client", streaming=True),
        asked(topics.JOB_URGENCY, {"id": 1, "urgency": 20}),
    )
    assert told(m) == [(1, [*PENDING, "urgency", "priority"]), OVER]


def test_what_is_not_durable_yet_is_told_when_it_is() -> None:
    m = ManagerScript(peers=True, commits_wait=True)
    m.submit(1)
    follow(m)
    m.urgency(1, 20)
    assert told(m) == []
    m.commit()  # of the submission: now the backlog is read
    assert told(m) == []
    m.commit()
    assert told(m) == [(1, PENDING), OVER, (1, ["urgency"]), (1, ["priority"])]


def test_job_that_ends_while_the_backlog_is_read_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was active when its page was read, and is among those that have ended later."""
    monkeypatch.setattr("flux_trio.cores.stored_jobs.LOOKUP_JOBS_MAX", 1)
    monkeypatch.setattr(events_journal, "LOOKUP_JOBS_MAX", 1)
    m = ManagerScript(peers=True, commits_wait=True)
    m.submit(*range(1, 9))
    while m.commits:
        m.commit()
    m.messages.clear()
    m.put(
        asked(topics.JOB_EVENTS, {"full": True}, by="client", streaming=True),
        asked(topics.JOB_URGENCY, {"id": 2, "urgency": 20}),
    )
    m.raise_(1)
    while m.commits:
        m.commit()
    names = Counter(name for jobid, each in told(m) if jobid == 1 for name in each)
    assert names == Counter([*PENDING, "exception", "clean"])


def test_stream_ends_when_too_much_happens_while_its_backlog_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_journal, "HELD_MAX", 3)
    m = ManagerScript(peers=True, commits_wait=True)
    m.submit(1)
    follow(m)
    m.urgency(1, 20)
    m.urgency(1, 21)
    while m.commits:
        m.commit()
    (refused,) = responses(m)
    assert refused.errnum == Errno.EOVERFLOW
    assert "more than 3 events" in refused.error_text


def test_canceled_stream_ends_and_is_told_nothing_more() -> None:
    m = ManagerScript(peers=True)
    follow(m)
    m.put(asked(topics.JOB_EVENTS_CANCEL, {"matchtag": 1}, by="client"))
    assert [each.errnum for each in responses(m)] == [0, Errno.ECANCELED]
    m.submit(1)
    assert told(m) == []


def test_follower_that_has_gone_is_told_nothing_and_its_backlog_goes_to_nobody() -> None:
    m = ManagerScript(peers=True, commits_wait=True)
    m.submit(1)
    follow(m)
    m.gone("client")
    follow(m, allow={"depend": 1})  # another one of the same name
    while m.commits:
        m.commit()
    assert told(m) == [(1, ["depend"]), OVER]


@pytest.mark.parametrize("key", ["allow", "deny"])
def test_names_are_keys_of_an_object(key: str) -> None:
    m = ManagerScript(peers=True)
    follow(m, **{key: 5})
    (refused,) = responses(m)
    assert refused.errnum == Errno.EPROTO
    assert f"{key} should be an object" in refused.error_text


def test_journal_is_a_stream() -> None:
    m = ManagerScript(peers=True)
    m.put(asked(topics.JOB_EVENTS, {}, by="client"))
    (refused,) = responses(m)
    assert refused.errnum == Errno.EPROTO


def test_backlog_of_many_jobs_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_trio.cores.stored_jobs.LOOKUP_JOBS_MAX", 2)
    monkeypatch.setattr(events_journal, "LOOKUP_JOBS_MAX", 2)
    m = ManagerScript(peers=True)
    m.submit(*range(1, 6))
    for jobid in (1, 2, 3):
        m.raise_(jobid)
    follow(m, full=True)
    assert sorted(each[0] for each in told(m)) == [-1, 1, 2, 3, 4, 5]
