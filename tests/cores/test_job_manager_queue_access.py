"""Who may submit to a queue."""

from __future__ import annotations

from flux_trio.config import parse_config
from flux_trio.cores.job_manager.calls import User, UserFound
from flux_trio.protocols import VALIDATE, HookAnswer, JobState
from tests.support.manager_script import ManagerScript
from tests.support.queue_script import TWO, refusals

CLOSED = parse_config("""
[queues.closed.policy.access]
allow-user = ["alice"]
allow-group = ["physics"]
""")


CLOSED_ALL = parse_config("[policy.access]\nallow-user = ['alice']")


def test_user_or_group_on_a_list_may_submit_and_others_may_not() -> None:
    """33.access.1-3, 33.validation.3, 33.background.5"""
    users = {
        1: User("alice", frozenset({"staff"})),
        2: User("bob", frozenset({"staff", "physics"})),
        3: User("carol", frozenset({"staff"})),
        4: User(),
    }
    m = ManagerScript(config=CLOSED, users=users)
    for userid in users:
        m.submit(userid, userid=userid, queue="closed")
    assert [m.state(jobid) for jobid in (1, 2)] == [JobState.SCHED] * 2
    m.submit(5, userid=3, queue="closed")
    assert refusals(m) == [[5, "user carol has no access to queue closed"]]
    m.submit(6, userid=4, queue="closed")
    assert refusals(m) == [[6, "userid 4 has no access to queue closed"]]


def test_owner_is_a_user_like_others() -> None:
    """33.access.2: nobody who is on no list may submit."""
    m = ManagerScript(config=CLOSED_ALL, users={1000: User("flux")})
    m.submit(1, userid=1000)
    assert refusals(m) == [[1, "user flux has no access to this instance"]]


def test_open_queue_asks_no_user_database() -> None:
    """33.access.4, 33.criteria.2"""
    m = ManagerScript(config=TWO)
    assert not [line for line in m.submit(1, 2) if line.startswith("find user")]


def test_job_waits_for_the_user_database_and_others_do_not() -> None:
    m = ManagerScript(config=CLOSED, users={1: User("alice")})
    assert m.submit(1, 2, userid=77, queue="closed") == ["find user 77"]
    m.submit(3, userid=1, queue="closed")
    assert m.state(3) == JobState.SCHED
    assert "job-manager.submit -> {'errors': []}" in m.put(UserFound(77, User("alice")))
    assert [m.state(jobid) for jobid in (1, 2)] == [JobState.SCHED] * 2


def test_plugin_may_refuse_whom_a_list_allows() -> None:
    """33.access.5"""
    answers = {VALIDATE: HookAnswer(reject="no bank")}
    m = ManagerScript(config=CLOSED, users={1: User("alice")}, answers=answers)
    m.submit(1, userid=1, queue="closed")
    assert refusals(m) == [[1, "no bank"]]


def test_job_of_before_that_is_canceled_while_its_user_is_asked_for_stays_canceled() -> None:
    m = ManagerScript(config=CLOSED, users={1: User("alice")}, hooks=[VALIDATE])
    m.submit(1, userid=1, queue="closed")
    again = m.restarted(config=CLOSED)
    assert again.began == ["find user 1"]
    again.raise_(1)
    again.put(UserFound(1, User("alice")))
    assert "validate" not in again.names(1)
    assert again.names(1)[-1] == "clean"


def test_job_that_is_canceled_before_it_is_validated_again_is_answered_as_accepted() -> None:
    """Its queue is opened meanwhile, so its second submission asks for no user."""
    m = ManagerScript(config=CLOSED)
    submission = m.submission(1, userid=1, queue="closed")
    again = m.restarted(config=CLOSED)
    assert again.began == ["find user 1"]
    again.configure(parse_config("[queues.closed]"))
    assert again.put(submission) == []
    assert again.raise_(1)[-1] == "job-manager.raise -> {}"
    assert again.put(UserFound(1, User("alice"))) == ["job-manager.submit -> {'errors': []}"]
    assert again.names(1)[-1] == "clean"
