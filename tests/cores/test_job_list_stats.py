"""job-list.job-stats: counts that follow every change."""

from __future__ import annotations

from typing import Any

from flux_trio.messages import topics
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
