"""New expirations of running jobs when the scheduler, which has to accept them, is lost."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flux_trio.messages import ROLE_OWNER, Errno, Event, Response, topics
from flux_trio.protocols import HookAnswer
from tests.cores.test_job_manager_update import DURATION, running, scheduler_says, update
from tests.support.manager_script import CANCEL, START, ManagerScript

ALLOWED = {f"job.update.{DURATION}": HookAnswer(handled=True, validated=True)}
ANSWERED = "job-manager.update -> {}"


def script(**how: Any) -> ManagerScript:
    return ManagerScript(answers=ALLOWED, peers=True, **how)


def expiration(m: ManagerScript) -> Any:
    return m.context(1, "resource-update")["expiration"]


def test_request_that_waits_for_a_commit_is_not_sent_to_the_next_scheduler() -> None:
    """27.finalization.4, 27.impl.14: nobody is asked, so the update is made."""
    m = script()
    running(m, 1, starttime=START)
    m.commits_wait = True
    m.submit(2)  # its events are not durable
    assert "sched.expiration 1" not in update(m, 1, 60)
    m.gone("sched")
    m.attach_sched()
    did = [line for _ in range(len(m.commits)) for line in m.commit()]
    while m.commits:
        did += m.commit()
    assert ANSWERED in did
    assert did.count("sched.expiration 1") == 1  # what is in force is told after sched-ready
    assert did.index("sched.expiration 1") > next(
        place for place, line in enumerate(did) if line.startswith("job-manager.sched-ready ->")
    )
    assert expiration(m) == START + 60


@pytest.mark.parametrize("errnum", [0, Errno.ENOENT])
def test_scheduler_that_said_no_hello_is_not_listened_to(errnum: int) -> None:
    """27.expiration.10: the next scheduler got the request before its hello."""
    m = script()
    running(m, 1, starttime=START)
    update(m, 1, 60)
    asked = m.last(topics.SCHED_EXPIRATION)
    assert ANSWERED in m.gone("sched")
    late = Response(topics.SCHED_EXPIRATION, None, errnum, asked.matchtag)
    assert m.put(late) == []
    assert m.names(1).count("resource-update") == 1
    assert expiration(m) == START + 60


def test_second_hello_ends_what_the_first_scheduler_was_asked() -> None:
    m = script()
    running(m, 1, starttime=START)
    update(m, 1, 60)
    assert ANSWERED in m.hello()
    assert m.ready()[1:] == ["sched.expiration 1"]


def test_scheduler_that_broke_the_protocol_may_still_refuse() -> None:
    """27.expiration.10: it is there, and was asked before its error."""
    m = script()
    running(m, 1, starttime=START)
    update(m, 1, 60)
    m.submit(2)
    m.sched_error(topics.SCHED_ALLOC)
    refused = "job-manager.update -> EINVAL scheduler refused expiration update"
    assert scheduler_says(m, Errno.EINVAL, "no") == [refused]
    assert "resource-update" not in m.names(1)


def test_what_was_told_to_a_lost_scheduler_is_told_to_the_next_alone() -> None:
    m = script()
    running(m, 1, starttime=START)
    update(m, 1, 60)
    scheduler_says(m)
    m.gone("sched")
    assert "sched.expiration 1" in m.attach_sched()
    told = m.last(topics.SCHED_EXPIRATION)
    m.gone("sched")
    assert m.put(Response(topics.SCHED_EXPIRATION, "no", Errno.ENOENT, told.matchtag)) == []


HELD = f"job.update.{DURATION}"
END = START + 50


def agreed_and_held(what: str) -> ManagerScript:
    """A scheduler has agreed to a new expiration of job 1, which waits for a plugin's answer."""
    m = script()
    running(m, 1, starttime=START)
    m.plugins.waiting.add(HELD)
    end = Event(topics.RESOURCE_EXPIRATION_EVENT, {"expiration": END}, rolemask=ROLE_OWNER)
    if what == "update":
        m.plugins.waiting.clear()
        update(m, 1, 50)
        m.plugins.waiting.add(HELD)
    else:
        m.put(end)
    update(m, 1, 90)  # a question about the job is open
    scheduler_says(m)
    assert "resource-update" not in m.names(1)
    return m


@pytest.mark.parametrize("errnum", [0, Errno.ENOSYS, Errno.EINVAL])
@pytest.mark.parametrize("what", ["update", "end of the instance"])
def test_change_that_waits_for_a_hook_is_asked_of_the_next_scheduler(
    what: str, errnum: int
) -> None:
    """27.expiration.1, 27.expiration.10: nothing is in force yet, so that one may refuse it."""
    m = agreed_and_held(what)
    m.gone("sched")
    assert "sched.expiration 1" not in m.attach_sched()
    assert "sched.expiration 1" in m.answer(HELD, reject="no")
    assert m.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": END}
    did = scheduler_says(m, errnum, "no")
    if errnum == Errno.EINVAL:
        assert "resource-update" not in m.names(1)
        refused = "job-manager.update -> EINVAL scheduler refused expiration update"
        warned = f"log 4: job 1: scheduler refused expiration {math.ceil(END)}"
        assert did == [refused if what == "update" else warned]
    else:
        assert expiration(m) == END
        assert (ANSWERED in did) == (what == "update")


@pytest.mark.parametrize("what", ["update", "end of the instance"])
def test_change_that_waits_for_a_hook_is_made_if_no_scheduler_has_come(what: str) -> None:
    m = agreed_and_held(what)
    m.gone("sched")
    m.answer(HELD, reject="no")
    assert expiration(m) == END
    assert m.attach_sched().count("sched.expiration 1") == 1


def test_next_scheduler_is_told_what_is_in_force_while_a_change_waits() -> None:
    """27.expiration.1: R has an older one still."""
    m = script()
    running(m, 1, starttime=START)
    update(m, 1, 20)
    scheduler_says(m)
    update(m, 1, 60)
    m.plugins.waiting.add(HELD)
    update(m, 1, 90)
    scheduler_says(m)
    m.gone("sched")
    assert m.attach_sched().count("sched.expiration 1") == 1
    assert m.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": START + 20}
    assert "sched.expiration 1" in m.answer(HELD, reject="no")
    assert m.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": START + 60}


def test_new_end_of_the_instance_is_in_force_though_its_scheduler_is_lost() -> None:
    m = script()
    running(m, 1, starttime=START)
    end = Event(topics.RESOURCE_EXPIRATION_EVENT, {"expiration": START + 50}, rolemask=ROLE_OWNER)
    assert "sched.expiration 1" in m.put(end)
    m.gone("sched")
    assert expiration(m) == START + 50


def test_grant_for_the_old_duration_is_asked_to_last_for_the_new_one() -> None:
    """27.cancel.7: SUCCESS has crossed the cancel of a request whose duration had changed."""
    m = script()
    m.submit(1)
    assert "sched.cancel 1" in update(m, 1, 300)
    did = m.alloc(1)
    assert "sched.expiration 1" in did
    asked = m.last(topics.SCHED_EXPIRATION).payload
    starttime = m.core._parts.ledger.jobs[1].granted.starttime
    assert asked == {"id": 1, "expiration": math.ceil(starttime + 300)}
    scheduler_says(m)
    assert m.names(1)[-2:] == ["alloc", "resource-update"]
    assert m.alloc(1, CANCEL) == []  # nothing is canceled any more


def test_grant_for_an_older_jobspec_of_the_same_duration_needs_no_new_end() -> None:
    m = ManagerScript(
        answers={"job.update.attributes.system.x": HookAnswer(handled=True)}, peers=True
    )
    m.submit(1)
    assert "sched.cancel 1" in update(m, 1, 3, key="attributes.system.x")
    assert "sched.expiration 1" not in m.alloc(1)


def test_next_job_manager_asks_for_the_new_duration_of_a_job_that_was_just_granted() -> None:
    """The first one ended between alloc and resource-update."""
    m = script()
    m.submit(1)
    update(m, 1, 300)
    m.alloc(1)
    assert m.names(1)[-1] == "alloc"
    after = m.restarted(peers=True)
    assert after.last(topics.SCHED_EXPIRATION).payload == m.last(topics.SCHED_EXPIRATION).payload
    scheduler_says(after)
    assert after.names(1)[-1] == "resource-update"
    again = after.restarted(peers=True)
    again.gone("sched")
    assert again.attach_sched().count("sched.expiration 1") == 1
    assert again.names(1).count("resource-update") == 1
