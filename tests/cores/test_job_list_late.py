"""job-list: requests about jobs that the next job manager has accepted and job-list has not read.

A client that has the id of such a job must not hear that there is none.
"""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.job_list import follow
from flux_trio.cores.job_list.follow import SLICE_EVENTS
from flux_trio.formats import Event
from flux_trio.messages import Errno, topics
from tests.support.asking import gone, service_back
from tests.support.eventlogs import event, inactive, pending
from tests.support.listing import ListedJobs

NEW = 7
UNKNOWN = [(Errno.ENOENT, "unknown job id")]
ASKED: dict[str, dict[str, Any]] = {
    topics.LIST_ID: {"id": NEW},
    topics.INFO_LOOKUP: {"id": NEW, "keys": ["eventlog"]},
    topics.INFO_WATCH: {"id": NEW, "path": "eventlog"},
}


def ask(listed: ListedJobs, topic: str) -> list[tuple[int, Any]]:
    return listed.ask(topic, ASKED[topic], streaming=topic == topics.INFO_WATCH)


@pytest.fixture
def listed() -> ListedJobs:
    """A job list that asks the next job manager for its journal; this one has accepted a job."""
    listed = ListedJobs()
    listed.start()
    listed.lose_journal()
    listed.turn(service_back("job-manager"))
    listed.store_jobspec(NEW)
    listed.store_log(NEW, pending())
    return listed


@pytest.mark.parametrize("topic", ASKED)
def test_request_waits_until_the_job_is_read(listed: ListedJobs, topic: str) -> None:
    assert ask(listed, topic) == []
    listed.tell()
    answers = listed.take_sent()
    assert {errnum for errnum, _ in answers} == {0}
    assert len(answers) == (len(pending()) if topic == topics.INFO_WATCH else 1)


def test_request_waits_while_jobs_are_read(listed: ListedJobs) -> None:
    """The index was read before the job was stored; the journal tells of it, in two slices."""
    listed.waits = True
    listed.tell()
    late, more = NEW + 1, event("annotations", annotations={})
    listed.tell(*[(NEW, -1, more)] * SLICE_EVENTS, *enumerated(late, pending()))
    assert listed.ask(topics.INFO_LOOKUP, {"id": late, "keys": ["eventlog"]}) == []
    while listed.answers:
        listed.let_kvs_answer()
    ((errnum, _),) = listed.take_sent()
    assert errnum == 0


def enumerated(jobid: int, events: list[Event]) -> list[tuple[int, int, Event]]:
    return [(jobid, place, each) for place, each in enumerate(events)]


def test_request_about_a_job_that_ends_meanwhile_is_answered(listed: ListedJobs) -> None:
    assert ask(listed, topics.INFO_WATCH) == []
    listed.store_log(NEW, inactive()[len(pending()) :])
    listed.tell()
    *answers, end = listed.take_sent()
    assert len(answers) == len(inactive())
    assert end[0] == Errno.ENODATA


def test_request_is_refused_if_the_job_manager_is_gone_again(listed: ListedJobs) -> None:
    assert ask(listed, topics.LIST_ID) == []
    listed.lose_journal()
    assert listed.take_sent() == [(Errno.ENOSYS, "job-manager is gone")]


def test_request_of_a_client_that_is_gone_is_forgotten(listed: ListedJobs) -> None:
    """6.disconnect.2."""
    assert ask(listed, topics.INFO_LOOKUP) == []
    assert ask(listed, topics.LIST_ID) == []
    listed.turn(gone(topics.JOB_INFO, "alice"))
    listed.tell()
    assert listed.take_sent() == []


def test_job_that_nobody_has_is_unknown_at_once(listed: ListedJobs) -> None:
    assert listed.ask(topics.LIST_ID, {"id": NEW + 1}) == UNKNOWN


# --- a watch that is not open yet: its credit and its cancel wait with it


@pytest.fixture
def waiting() -> ListedJobs:
    """A job list that reads the eventlog of a finished job, before it opens a watch of it."""
    listed = ListedJobs()
    listed.store_log(NEW, inactive())
    listed.start()
    listed.waits = True
    watch = {"id": NEW, "path": "eventlog", "credit": 1}
    assert listed.ask(topics.INFO_WATCH, watch, streaming=True, tag=9) == []
    return listed


def let_all_come(listed: ListedJobs) -> list[tuple[int, Any]]:
    while listed.answers:
        listed.let_kvs_answer()
    return listed.take_sent()


def test_cancel_that_comes_before_its_watch_is_open_ends_it(waiting: ListedJobs) -> None:
    assert waiting.ask(topics.INFO_WATCH_CANCEL, {"matchtag": 9}) == []
    assert let_all_come(waiting) == [(Errno.ECANCELED, None), (0, {})]


def test_credit_that_comes_before_its_watch_is_open_is_not_lost(waiting: ListedJobs) -> None:
    credit = {"matchtag": 9, "credit": 2}
    assert waiting.ask(topics.credit_of(topics.INFO_WATCH), credit) == []
    granted, *lines = let_all_come(waiting)
    assert granted == (0, None)
    assert len(lines) == 3


def test_cancel_of_a_watch_that_is_put_off_ends_it(listed: ListedJobs) -> None:
    assert listed.ask(topics.INFO_WATCH, ASKED[topics.INFO_WATCH], streaming=True, tag=9) == []
    assert listed.ask(topics.INFO_WATCH_CANCEL, {"matchtag": 9}) == []
    listed.tell()
    *_, ended, canceled = listed.take_sent()
    assert (ended, canceled) == ((Errno.ECANCELED, None), (0, {}))


def test_cancel_of_a_watch_that_is_refused_is_refused(listed: ListedJobs) -> None:
    """The kvs answers the watch first: there is no such job, and so no such watch."""
    listed.waits = True
    unknown = {"id": NEW + 1, "path": "eventlog"}
    assert listed.ask(topics.INFO_WATCH, unknown, streaming=True, tag=9) == []
    assert listed.ask(topics.INFO_WATCH_CANCEL, {"matchtag": 9}) == []
    assert [errnum for errnum, _ in let_all_come(listed)] == [Errno.ENOENT, Errno.ENOENT]


# job-list.job-state-pause, by which tests of Flux let job-list be behind


@pytest.fixture
def paused() -> ListedJobs:
    """A job list that is paused; meanwhile the job manager has accepted a job."""
    listed = ListedJobs()
    listed.start()
    assert listed.ask(topics.LIST_PAUSE, None) == [(0, None)]
    listed.store_jobspec(NEW)
    listed.store_log(NEW, pending())
    listed.tell(*enumerated(NEW, pending()))
    return listed


def waits(listed: ListedJobs) -> Any:
    ((_, stats),) = listed.ask("job-list.stats-get", None)
    return stats["idsync"]["waits"]


def test_list_id_waits_for_the_end_of_a_pause_and_is_counted_by_job(paused: ListedJobs) -> None:
    assert waits(paused) == 0
    assert ask(paused, topics.LIST_ID) == []
    assert ask(paused, topics.LIST_ID) == []
    assert waits(paused) == 1
    answers = paused.ask(topics.LIST_UNPAUSE, None)
    assert [errnum for errnum, _ in answers] == [0, 0, 0]
    assert waits(paused) == 0


def test_an_unknown_job_is_refused_after_a_pause(paused: ListedJobs) -> None:
    assert paused.ask(topics.LIST_ID, {"id": NEW + 1}) == []
    assert sorted(paused.ask(topics.LIST_UNPAUSE, None), key=str) == [(0, None), *UNKNOWN]


@pytest.mark.parametrize("topic", [topics.INFO_LOOKUP, topics.INFO_WATCH])
def test_a_pause_does_not_delay_what_is_read_of_a_job(paused: ListedJobs, topic: str) -> None:
    assert {errnum for errnum, _ in ask(paused, topic)} == {0}


def test_a_pause_ends_when_too_much_of_the_journal_waits(
    paused: ListedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "HELD_MAX", 1)
    assert ask(paused, topics.LIST_ID) == []
    paused.tell()
    assert [errnum for errnum, _ in paused.take_sent()] == [0]
