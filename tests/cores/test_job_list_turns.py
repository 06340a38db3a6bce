"""job-list: the lists of one user take turns, a slice of jobs each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_list import line
from flux_trio.cores.job_list.choosing import SLICE_JOBS
from flux_trio.cores.job_list.line import AT_ONCE_MAX
from flux_trio.messages import Errno, Request, topics
from tests.support.asking import OWNER_USERID, asked, asked_by_guest
from tests.support.eventlogs import pending
from tests.support.listing import STATES, ListedJobs

SLICES = 30  # of a list of all jobs
COUNT = SLICES * SLICE_JOBS


@pytest.fixture(scope="module")
def kvs() -> Any:
    """What is stored of many pending jobs."""
    listed = ListedJobs()
    for jobid in range(1, COUNT + 1):
        listed.store_log(jobid, pending())
        listed.store_jobspec(jobid)
    return listed.kvs


@pytest.fixture
def listed(kvs: Any) -> ListedJobs:
    """A job list that has read them."""
    listed = ListedJobs()
    listed.kvs = kvs
    listed.start()
    return listed


def of_jobs(count: int, tag: int, *, guest: bool = False) -> Request:
    """A request for so many jobs; 0 for all."""
    wanted = {"states": STATES, "max_entries": count}
    if guest:
        return msgspec.structs.replace(asked_by_guest(topics.LIST_LIST, wanted), matchtag=tag)
    return asked(topics.LIST_LIST, wanted, tag=tag)


def turns_until_answered(listed: ListedJobs, matchtags: set[int], most: int) -> dict[int, int]:
    """In which turn from now each of the requests is answered."""
    turns: dict[int, int] = {}
    for turn in range(most + 1):
        for response in listed.sent:
            turns.setdefault(response.matchtag, turn)
        if matchtags <= turns.keys():
            return turns
        listed.fire_timer()
    raise AssertionError(f"after {most} turns of {matchtags} only {turns} have an answer")


@pytest.mark.parametrize("guest", [False, True])
def test_short_list_does_not_wait_for_a_long_one_of_its_user(
    listed: ListedJobs, *, guest: bool
) -> None:
    listed.turn(of_jobs(0, 1, guest=guest))
    listed.turn(of_jobs(5, 2, guest=guest))
    turns = turns_until_answered(listed, {1, 2}, 2 * SLICES)
    assert turns[2] <= 2
    assert turns[1] >= SLICES - 2
    rows = {each.matchtag: len(each.payload["jobs"]) for each in listed.sent}
    assert rows == {1: COUNT, 2: 5}


def test_long_lists_get_as_many_slices_each(listed: ListedJobs) -> None:
    tags = set(range(1, AT_ONCE_MAX + 1))
    for tag in tags:
        listed.turn(of_jobs(0, tag))
    turns = turns_until_answered(listed, tags, SLICES * len(tags) + len(tags))
    assert max(turns.values()) - min(turns.values()) <= 2 * len(tags)


def test_lists_beyond_those_that_take_turns_have_not_begun(listed: ListedJobs) -> None:
    """A list that has begun takes memory for each job."""
    for tag in range(1, 51):
        listed.turn(of_jobs(0, tag))
    for _ in range(100):
        listed.fire_timer()
    lists = listed.core._listings._line.of_user[OWNER_USERID]
    assert len(lists) == 50
    assert [bool(each.rows) for each in lists].count(True) == AT_ONCE_MAX
    assert not any(each.rows for each in list(lists)[AT_ONCE_MAX:])


def test_longest_list_goes_on_alone_while_the_lists_hold_much(
    listed: ListedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = 40_000
    monkeypatch.setattr(line, "HELD_BYTES_MAX", held)
    tags = {1, 2, 3, 4}
    for tag in tags:
        listed.turn(of_jobs(0, tag))
    longest = most = 0
    while len(listed.sent) < len(tags):
        listed.fire_timer()
        sizes = [each.nbytes for each in listed.core._listings._line.of_user.get(OWNER_USERID, ())]
        longest, most = max([longest, *sizes]), max(most, sum(sizes))
    assert longest > held, "the test is of longer lists"
    assert most <= held + longest
    assert {each.errnum for each in listed.sent} == {0}


def test_list_that_waits_its_turn_may_be_canceled(listed: ListedJobs) -> None:
    listed.turn(of_jobs(0, 1))
    listed.turn(of_jobs(0, 2))
    listed.fire_timer()
    listed.turn(asked(topics.LIST_CANCEL, {"matchtag": 2}, tag=99))
    turns_until_answered(listed, {1, 2}, SLICES + 5)
    answers = [each for each in listed.sent if each.topic == topics.LIST_LIST]
    assert {each.matchtag: each.errnum for each in answers} == {1: 0, 2: Errno.ECANCELED}
