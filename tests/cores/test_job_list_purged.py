"""A job that is purged while the index of finished jobs is read is not brought back by a page."""

from __future__ import annotations

import msgspec
import pytest

from flux_trio.cores.job_index import ended_at
from flux_trio.cores.job_list.finished import NEWEST, Finished
from flux_trio.editions import journal
from flux_trio.editions.journal import Ended
from flux_trio.formats import job_key
from flux_trio.messages import ROLE_OWNER, Event, topics
from tests.support.asking import asked
from tests.support.eventlogs import inactive, running
from tests.support.listing import STATES, ListedJobs

OLD, NEW = Ended(1, 1_000_000, 0, 1, 0, 0), Ended(2, 2_000_000, 0, 1, 0, 0)


@pytest.mark.parametrize("purged", [(OLD,), (OLD, NEW)])
def test_page_that_was_read_before_the_purge_does_not_bring_the_job_back(
    purged: tuple[Ended, ...],
) -> None:
    finished = Finished()
    finished.begin()
    for job in purged:
        finished.purge((job.usec, job.id))
    finished.fill([NEW, OLD], is_last=True)
    assert [job.id for job in finished.before(NEWEST, 9)[0]] == [2][: 2 - len(purged)]
    assert len(finished) == finished.counts.total() == 2 - len(purged)


def test_job_that_is_purged_after_its_page_is_gone() -> None:
    finished = Finished()
    finished.begin()
    finished.fill([NEW], is_last=False)
    finished.purge((NEW.usec, NEW.id))
    finished.fill([OLD], is_last=True)
    assert [job.id for job in finished.before(NEWEST, 9)[0]] == [OLD.id]


def test_job_that_ends_and_is_purged_while_eventlogs_are_read_is_not_counted() -> None:
    """The journal's word of its end waits for the eventlogs, and so does that of its purge."""
    listed = ListedJobs()
    listed.store_log(1, running())
    listed.waits = True
    listed.start()
    rest = inactive()[len(running()) :]
    events = [
        [1, place, msgspec.to_builtins(event)] for place, event in enumerate(rest, len(running()))
    ]
    listed.turn(listed.from_journal({"events": events}))
    purged = journal.PURGED.write(journal.Purged([1], [ended_at(rest[-1].timestamp)]))
    listed.turn(Event(topics.JOB_PURGE_EVENT, purged, rolemask=ROLE_OWNER))
    listed.waits = False
    while listed.answers:
        listed.let_kvs_answer()
    ((_, stats),) = listed.ask(topics.stats_of(topics.JOB_LIST))
    assert stats["jobs"] == {"pending": 0, "running": 0, "inactive": 0}


def test_row_of_a_job_is_not_kept_after_its_purge() -> None:
    listed = ListedJobs()
    listed.start()
    listed.tell_all(1, inactive())
    assert listed.ids() == [1]
    assert _kept_rows(listed) == 1
    _purge(listed, 1)
    assert listed.ids() == []
    assert _kept_rows(listed) == 0


def test_row_that_is_purged_while_other_jobs_are_read_is_left_out() -> None:
    listed = ListedJobs()
    listed.start()
    listed.tell_all(1, inactive())
    assert listed.ids() == [1]
    listed.tell_all(2, running())
    lookups = listed.core.turn(0.0, [asked(topics.LIST_LIST, {"states": STATES})])
    listed.commit(["unlink", job_key(1, "eventlog")])
    _purge(listed, 1)
    listed.do(lookups)
    ((errnum, payload),) = listed.take_sent()
    assert (errnum, [row["id"] for row in payload["jobs"]]) == (0, [2])


def _purge(listed: ListedJobs, jobid: int) -> None:
    ended = inactive()[-1].timestamp
    purged = journal.PURGED.write(journal.Purged([jobid], [ended_at(ended)]))
    listed.turn(Event(topics.JOB_PURGE_EVENT, purged, rolemask=ROLE_OWNER))


def _kept_rows(listed: ListedJobs) -> int:
    """How many rows the core holds; their bytes are counted exactly if there are any."""
    state = listed.core.dump()["core._details"]
    (*_, rows) = state["_rows"]
    assert bool(rows) == (state["_nbytes"] > 0)
    return len(rows)
