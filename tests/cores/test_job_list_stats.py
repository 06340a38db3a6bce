"""job-list.job-stats: counts that follow every change."""

from __future__ import annotations

from typing import Any

from flux_trio.config import parse_config
from flux_trio.cores.job_index import ended_key, ended_value, mark_of
from flux_trio.editions.journal import Ended
from flux_trio.messages import ROLE_OWNER, Errno, Event, Response, topics
from flux_trio.protocols import JobResult
from tests.support.asking import asked, gone
from tests.support.eventlogs import canceled, event, inactive, pending, running
from tests.support.listing import ListedJobs


def stats(listed: ListedJobs) -> dict[str, Any]:
    ((errnum, payload),) = listed.ask(topics.LIST_STATS)
    assert errnum == 0
    return dict(payload)


def counts(listed: ListedJobs) -> dict[str, int]:
    told = stats(listed)
    states = {name: count for name, count in told["job_states"].items() if count}
    results = ("successful", "failed", "canceled", "timeout")
    return states | {name: told[name] for name in results if told[name]}


def test_jobs_are_counted_by_state_and_by_result(listed: ListedJobs) -> None:
    nothing = stats(listed)
    assert set(nothing["job_states"].values()) == {0}
    assert (nothing["inactive_purged"], nothing["queues"]) == (0, [])
    logs = [pending()[:2], pending()[:3], pending(), running(), inactive(), canceled()]
    for jobid, log in enumerate(logs, start=1):
        listed.tell_all(jobid, log)
    assert counts(listed) == {
        "depend": 1,
        "priority": 1,
        "sched": 1,
        "run": 1,
        "inactive": 2,
        "total": 6,
        "successful": 1,
        "canceled": 1,
    }


def test_a_job_moves_from_count_to_count(listed: ListedJobs) -> None:
    story = inactive()
    for place, each in enumerate(story):
        listed.tell((1, place, each))
    assert counts(listed) == {"inactive": 1, "total": 1, "successful": 1}


def test_a_job_that_is_refused_is_not_counted(listed: ListedJobs) -> None:
    listed.tell((1, 0, pending()[0]))
    listed.tell((1, 1, event("invalidate")))
    assert counts(listed) == {}


def test_jobs_are_counted_once_when_the_journal_is_read_again() -> None:
    listed = ListedJobs()
    listed.store_log(1, pending())
    listed.start()
    assert counts(listed) == {"sched": 1, "total": 1}
    listed.lose_journal()
    listed.fire_timer()
    listed.tell()
    assert counts(listed) == {"sched": 1, "total": 1}


def test_memos_are_listed_as_the_users_annotations(listed: ListedJobs) -> None:
    """21.events.38."""
    listed.tell_all(1, [*pending(), event("memo", a=1, b=2), event("memo", b=None)])
    assert listed.job(1)["annotations"] == {"user": {"a": 1}}


def of_batch(jobid: int, result: JobResult, queue: str = "batch") -> list[str]:
    """The op that puts a finished job into the index."""
    job = Ended(jobid, jobid, 1000, int(result), 1, mark_of(queue))
    return ["put", ended_key(job), ended_value(job)]


def with_queues() -> ListedJobs:
    listed = ListedJobs(parse_config("[queues.batch]\n[queues.debug]"))
    listed.commit(
        of_batch(1, JobResult.COMPLETED),
        of_batch(2, JobResult.FAILED),
        of_batch(3, JobResult.COMPLETED, "debug"),
        of_batch(4, JobResult.COMPLETED, "another"),
    )
    listed.start()
    return listed


def manager_counts(listed: ListedJobs, **queues: dict[str, int]) -> list[tuple[int, Any]]:
    """The job manager says how many active jobs are in each queue; what was answered then."""
    asked = listed.asked_manager.pop()
    listed.turn(Response(asked.topic, {"queues": queues}, 0, asked.matchtag))
    return listed.take_sent()


def test_each_queue_has_its_counts_of_active_and_of_finished_jobs() -> None:
    listed = with_queues()
    assert listed.ask(topics.LIST_STATS) == []
    ((_, told),) = manager_counts(listed, batch={"run": 2, "sched": 1}, old={"run": 1})
    batch, debug = told["queues"]
    assert (batch["name"], debug["name"]) == ("batch", "debug")
    assert {name: n for name, n in batch["job_states"].items() if n} == {
        "run": 2,
        "sched": 1,
        "inactive": 2,
        "total": 5,
    }
    assert (batch["successful"], batch["failed"], debug["successful"]) == (1, 1, 1)
    assert told["job_states"]["inactive"] == 4


def test_queues_have_their_finished_jobs_without_a_job_manager() -> None:
    listed = with_queues()
    listed.ask(topics.LIST_STATS)
    asked = listed.asked_manager.pop()
    listed.turn(Response(asked.topic, "is gone", Errno.ENOSYS, asked.matchtag))
    ((_, told),) = listed.take_sent()
    assert [each["job_states"]["total"] for each in told["queues"]] == [2, 1]


def test_a_purge_is_counted_in_its_queue() -> None:
    listed = with_queues()
    purged = {"jobs": [3], "times": [3]}
    listed.turn(Event(topics.JOB_PURGE_EVENT, purged, rolemask=ROLE_OWNER))
    listed.ask(topics.LIST_STATS)
    ((_, told),) = manager_counts(listed)
    _, debug = told["queues"]
    assert (debug["inactive_purged"], debug["job_states"]["total"]) == (1, 0)


def test_who_has_gone_is_not_answered_when_the_queues_are_counted() -> None:
    listed = with_queues()
    listed.ask(topics.LIST_STATS)
    listed.turn(gone("job-list", "alice"))
    assert manager_counts(listed) == []


def test_a_job_manager_that_is_slow_is_asked_once_at_a_time() -> None:
    listed = with_queues()
    listed.turn(asked(topics.LIST_STATS, {}, tag=9, streaming=True))
    listed.tell_all(5, running())
    listed.fire_timer()
    assert len(listed.asked_manager) == 1
    ((_, told),) = manager_counts(listed)
    assert told["job_states"]["run"] == 1
    listed.tell_all(6, running())
    listed.fire_timer()
    ((_, told),) = manager_counts(listed)
    assert told["job_states"]["run"] == 2
