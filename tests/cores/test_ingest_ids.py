"""Ids of jobs: unique, ascending, and behind those that were given before."""

from __future__ import annotations

import pytest

from flux_trio.cores.turns import Exit
from flux_trio.messages import Errno, Response, topics
from tests.support.asking import asked, service_back
from tests.support.ingest_script import NOW, Script, ids_of, stored, submission


def test_ids_of_one_turn_are_unique_and_ascend() -> None:
    "19.fluid.2, at more than one millisecond has sequence numbers for."
    script = Script()
    ids: list[int] = []
    for commit in script(*(submission(tag) for tag in range(1, 5001))):
        (submit,) = script.answer(commit, {})
        ids += ids_of(submit)
    assert len(ids) == 5000
    assert ids == sorted(set(ids))


def test_ids_hold_the_milliseconds_of_the_submission() -> None:
    "19.fluid.1: a 40-bit millisecond timestamp, 14 bits of generator id, 10 bits of sequence."
    script = Script()
    (commit,) = script(submission(1))
    (early,) = ids_of(script.answer(commit, {})[0])
    script.now += 2.5
    (commit,) = script(submission(2))
    (late,) = ids_of(script.answer(commit, {})[0])
    assert (late >> 24) - (early >> 24) == 2500
    assert (early >> 10) & 0x3FFF == 0


@pytest.mark.parametrize("last", [0, 1, (123_456 << 24) + 1023, 6731191091817518])
def test_ids_grow_after_a_restart(last: int) -> None:
    "19.fluid.2: k-ordered, across the lives of an ingest."
    script = Script(max_jobid=last)
    (commit,) = script(submission())
    (jobid,) = ids_of(script.answer(commit, {})[0])
    assert jobid > last


def test_ids_grow_also_when_the_clock_was_set_back() -> None:
    "19.fluid.2"
    first = Script()
    (commit,) = first(submission())
    (last,) = ids_of(first.answer(commit, {})[0])
    again = Script(max_jobid=last, now=NOW - 3600)
    again.now -= 3600
    (commit,) = again(submission())
    (jobid,) = ids_of(again.answer(commit, {})[0])
    assert jobid > last


def test_reloaded_ingest_does_not_use_ids_that_were_stored_but_not_submitted() -> None:
    "19.fluid.2: the job manager knows only of `last`; a commit of more was under way."
    old = Script()
    (commit,) = old(submission())
    (last,) = ids_of(old.answer(commit, {})[0])
    old.now += 5
    unheard = {op[1] for op in stored(old(*(submission(tag) for tag in range(1, 200)))[0])}
    new = Script(max_jobid=last, now=old.now)
    for _ in range(8):
        (commit,) = new(*(submission(tag) for tag in range(1, 200)))
        assert not unheard & {op[1] for op in stored(commit)}
        new.now += 1


def test_reloaded_ingest_does_not_use_ids_of_which_the_job_manager_knows_none() -> None:
    """19.fluid.2: it tells both of the same last id, and both count from there."""
    old = Script()
    (commit,) = old(*(submission(tag) for tag in range(1, 5)))
    new = Script(max_jobid=None)
    routes = ("job-ingest", "1")
    new(Response(new.getinfo.topic, {"max_jobid": 0}, 0, new.getinfo.matchtag, routes=routes))
    (again,) = new(submission())
    assert {op[1] for op in stored(again)}.isdisjoint({op[1] for op in stored(commit)})


def test_submissions_wait_until_the_last_id_is_known() -> None:
    script = Script(max_jobid=None)
    assert script.getinfo.topic == "job-manager.getinfo"
    assert script(submission(1)) == []
    assert script(submission(2)) == []
    (commit,) = script.answer(script.getinfo, {"max_jobid": 99 << 24})
    assert len(stored(commit)) == 6


def test_ingest_cannot_go_on_without_the_last_id() -> None:
    script = Script(max_jobid=None)
    actions = script.answer(script.getinfo, "not for you", Errno.EPERM)
    assert actions == [Exit("job-manager.getinfo: not for you")]


def test_submissions_are_refused_while_nobody_holds_the_name_of_the_job_manager() -> None:
    """readings: Job manager gone.

    ENOSYS says that nobody holds the name; ingest asks again when somebody does.
    """
    script = Script(max_jobid=None)
    assert script(submission(1)) == []
    why = "job-manager ended: no disk"
    (early,) = script.answer(script.getinfo, why, Errno.ENOSYS)
    assert (early.matchtag, early.errnum, early.error_text) == (1, Errno.ENOSYS, why)
    (later,) = script(submission(2))
    assert (later.matchtag, later.errnum, later.error_text) == (2, Errno.ENOSYS, why)
    (counts,) = script(asked(topics.stats_of(topics.JOB_INGEST), None))
    assert (counts.errnum, counts.payload["submitting"]) == (0, 0)  # it needs no job manager
    assert script(service_back("kvs")) == []
    (again,) = script(service_back("job-manager"))
    assert again.topic == script.getinfo.topic
    assert script(service_back("job-manager")) == []
    assert script.answer(again, {"max_jobid": 99 << 24}) == []
    (commit,) = script(submission(3))
    assert len(stored(commit)) == 3
