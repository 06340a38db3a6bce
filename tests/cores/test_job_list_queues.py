"""job-list.list and queues: RFC 33, Job Submission and Listing Tools."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import CONSTRAINTS_KEY, QUEUE_KEY, Config, parse_config
from flux_trio.messages import Errno, topics
from flux_trio.protocols import JobState
from tests.support.asking import GUEST_USERID, asked_by_guest
from tests.support.eventlogs import event, inactive, pending, running
from tests.support.listing import ListedJobs

TWO = parse_config("""
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.debug]
""")


@pytest.fixture
def listed() -> ListedJobs:
    """1 and 2 wait in batch, 3 runs in debug, 4 is over; 2 was put into batch by default."""
    listed = ListedJobs(TWO)
    listed.store_log(1, pending())
    listed.store_jobspec(1, queue="batch")
    submit, *others = pending()
    update = event("jobspec-update", **{QUEUE_KEY: "batch", CONSTRAINTS_KEY: {}})
    listed.store_log(2, [submit, update, *others])
    listed.store_jobspec(2)
    listed.store_log(3, running())
    listed.store_jobspec(3, queue="debug")
    listed.store_log(4, inactive())
    listed.store_jobspec(4, queue="batch")
    listed.start()
    return listed


def ids(listed: ListedJobs, **wanted: object) -> list[int]:
    """As a tool that says nothing else gets them."""
    ((errnum, payload),) = listed.ask(topics.LIST_LIST, wanted)
    assert errnum == 0, payload
    return [job["id"] for job in payload["jobs"]]


def test_pending_and_running_jobs_of_the_default_queue_are_listed(listed: ListedJobs) -> None:
    """33.tools.2, 33.tools.7: the queue is that of the current jobspec."""
    assert ids(listed) == [1, 2]
    assert [job["queue"] for job in listed.jobs(queues=["batch"])] == ["batch"] * 3


def test_jobs_of_other_queues_are_listed_by_name(listed: ListedJobs) -> None:
    """33.tools.3, 33.criteria.4"""
    assert ids(listed, queues=["debug"]) == [3]
    assert ids(listed, queues=["debug", "batch"], max_entries=2) == [1, 2]
    assert ids(listed, queues=["nosuch"]) == []


def test_no_name_at_all_is_all_queues(listed: ListedJobs) -> None:
    """33.tools.4"""
    assert ids(listed, queues=[]) == [1, 2, 3]
    assert ids(listed, queues=[], states=JobState.INACTIVE) == [4]


def test_entries_are_counted_among_those_wanted(listed: ListedJobs) -> None:
    assert ids(listed, queues=["debug"], max_entries=1) == [3]


def test_without_a_default_queue_all_are_listed(listed: ListedJobs) -> None:
    """33.criteria.3: after a new configuration as well."""
    payload = {"config": Config().to_json()}
    assert listed.ask("job-list.config-reload", payload) == [(0, None)]
    assert ids(listed) == [1, 2, 3]


def test_in_private_mode_guests_see_their_own_jobs_only() -> None:
    """flux-config-access(5): and no counts."""
    listed = ListedJobs(parse_config("[access]\nprivate-mode = true"))
    for jobid, userid in ((1, 1000), (2, GUEST_USERID)):
        submit, *others = pending()
        submit = event("submit", **{**(submit.context or {}), "userid": userid})
        listed.store_log(jobid, [submit, *others])
        listed.store_jobspec(jobid)
    listed.start()

    def guest(topic: str, payload: object = None) -> tuple[int, Any]:
        (answer,) = listed.request(asked_by_guest(topic, payload))
        return answer

    refusal = (Errno.EPERM, "guests see only their own jobs (access.private-mode)")
    assert [job["id"] for job in guest(topics.LIST_LIST, {})[1]["jobs"]] == [2]
    assert guest(topics.LIST_LIST, {"userid": 1000}) == refusal
    assert guest(topics.LIST_ID, {"id": 2})[0] == 0
    assert guest(topics.LIST_ID, {"id": 1}) == guest(topics.LIST_ID, {"id": 9}) == refusal
    assert guest(topics.LIST_STATS, {}) == refusal
    assert ids(listed) == [1, 2]
    assert listed.ask(topics.LIST_STATS, {})[0][0] == 0


def test_new_configuration_is_the_owners_to_give(listed: ListedJobs) -> None:
    guest = asked_by_guest("job-list.config-reload", {"config": {}})
    ((errnum, _),) = listed.request(guest)
    assert errnum == Errno.EPERM
    ((errnum, text),) = listed.ask("job-list.config-reload", {"config": {"queues": 1}})
    assert (errnum, text) == (Errno.EINVAL, "config.queues: expected object, got 1")
