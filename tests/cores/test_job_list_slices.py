"""job-list: a long response of the journal is taken in slices, which nobody can see."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_index import ended_at
from flux_trio.cores.job_list.exchange import SLICE_TIMER
from flux_trio.cores.job_list.follow import SLICE_EVENTS
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.editions import journal
from flux_trio.messages import ROLE_OWNER, Event, topics
from flux_trio.protocols import JobState
from tests.support.asking import asked
from tests.support.eventlogs import inactive, pending
from tests.support.fingerprint import fingerprint
from tests.support.listing import STATES, ListedJobs

EACH = len(pending())
COUNT = 5 * SLICE_EVENTS // (2 * EACH)  # jobs whose events are two slices and a half
IDS = list(range(1, COUNT + 1))
ENDED = msgspec.to_builtins(journal.Ended(99_999, 1_000_000, 0, 1, 0, 0))


def entries(jobid: int) -> list[Any]:
    """What the journal tells of a pending job."""
    return [[jobid, place, event] for place, event in enumerate(map(_builtins, pending()))]


def entries_of(jobids: list[int]) -> list[Any]:
    """What it tells of several."""
    return [entry for jobid in jobids for entry in entries(jobid)]


def _builtins(event: Any) -> Any:
    return msgspec.to_builtins(event)


@pytest.fixture
def behind() -> ListedJobs:
    """A job list that has taken the first slice of a response."""
    listed = ListedJobs()
    listed.start()
    tell(listed, IDS)
    assert listed.timers == [SetTimer(SLICE_TIMER, 0.0)]
    return listed


def tell(listed: ListedJobs, jobids: list[int]) -> None:
    """One response of the journal tells of these jobs, and that another one is over."""
    told = entries_of(jobids)
    listed.turn(listed.from_journal({"events": told, "ended": [ENDED]}))


def active(listed: ListedJobs) -> list[int]:
    """The jobs that are listed now, without a request that would have the others taken."""
    return [jobid for jobid, _ in listed.core.active or []]


def test_each_turn_takes_a_slice_until_all_events_are_taken(behind: ListedJobs) -> None:
    first = SLICE_EVENTS // EACH
    assert active(behind) == IDS[:first]
    behind.fire_timer()
    assert active(behind) == IDS[: 2 * first]
    behind.fire_timer()
    assert active(behind) == IDS
    assert behind.timers == []


def test_request_finds_all_events_taken(behind: ListedJobs) -> None:
    assert behind.ids(max_entries=0) == IDS
    assert behind.timers == []


def test_request_of_the_same_turn_finds_all_events_taken() -> None:
    listed = ListedJobs()
    listed.start()
    told = entries_of(IDS)
    listed.turn(
        listed.from_journal({"events": told}),
        asked(topics.LIST_LIST, {"states": STATES, "max_entries": 0}),
    )
    while not listed.sent:
        listed.fire_timer()  # a long list goes on by a timer, too
    (answer,) = listed.sent
    assert [job["id"] for job in answer.payload["jobs"]] == IDS


def test_next_response_of_the_journal_comes_after_the_rest(behind: ListedJobs) -> None:
    later = [COUNT + 1, COUNT + 2]
    tell(behind, later)
    assert active(behind) == [*IDS, *later]
    assert behind.timers == []


def test_events_that_were_told_are_taken_before_the_journal_ends(behind: ListedJobs) -> None:
    behind.lose_journal()
    assert behind.job(IDS[-1])["state"] == JobState.SCHED


def test_purge_finds_all_events_taken() -> None:
    """Otherwise the rest would bring back a job that was purged."""
    listed = ListedJobs()
    listed.start()
    events = entries_of(IDS)
    last = COUNT + 1
    over = [[last, place, event] for place, event in enumerate(map(_builtins, inactive()))]
    listed.turn(listed.from_journal({"events": [*events, *over]}))
    purged = journal.PURGED.write(journal.Purged([last], [ended_at(inactive()[-1].timestamp)]))
    listed.turn(Event(topics.JOB_PURGE_EVENT, purged, rolemask=ROLE_OWNER))
    ((_, stats),) = listed.ask(topics.stats_of(topics.JOB_LIST))
    assert sum(stats["jobs"].values()) == len(IDS)


def test_event_of_the_rest_that_cannot_follow_ends_the_journal(listed: ListedJobs) -> None:
    told = entries_of(IDS)
    gap = [1, 99, {"timestamp": 1.0, "name": "memo"}]
    told.insert(SLICE_EVENTS + EACH, gap)
    listed.turn(listed.from_journal({"events": told}))
    assert listed.logs == []
    listed.fire_timer()
    (logged,) = listed.logs
    assert "expected event" in logged.text
    assert [timer.key for timer in listed.timers] == [topics.JOB_JOURNAL]
    ((_, stats),) = listed.ask(topics.stats_of(topics.JOB_LIST))
    assert sum(stats["jobs"].values()) == SLICE_EVENTS // EACH + 1, "the rest is dropped"


def test_state_does_not_tell_in_how_many_slices_events_were_taken(behind: ListedJobs) -> None:
    while behind.timers:
        behind.fire_timer()
    other = ListedJobs()
    other.start()
    for jobid in IDS:
        other.turn(other.from_journal({"events": entries(jobid)}))
    assert fingerprint(behind.core) == fingerprint(other.core)


def test_timer_of_a_slice_that_was_taken_does_nothing(behind: ListedJobs) -> None:
    behind.ids(max_entries=0)
    behind.turn(TimerFired(SLICE_TIMER))
    assert active(behind) == IDS
    assert behind.timers == []
