"""Who was served how: what users and banks received and waited, and the users themselves."""

from __future__ import annotations

import pytest

from flux_trio.sim import JobFacts, Outcome, WorkloadJob, deal_users, measure, served_run
from flux_trio.sim.served import longest_waits, mean_priority, serve_by
from flux_trio.sim.users import FIRST_USERID, userids_of


def job(
    user: str | None,
    ncores: int,
    t_submit: float,
    t_start: float | None,
    t_end: float,
    priorities: tuple[tuple[float, int], ...] = (),
) -> JobFacts:
    """A job of `user`, whose bank is named after the user's first letter."""
    bank = None if user is None else user[0]
    outcome = Outcome.COMPLETED
    return JobFacts("j", t_submit, t_start, t_end, ncores, outcome, "", user, bank, priorities)


def of(user: str, place: int = 0) -> WorkloadJob:
    return WorkloadJob(str(place), 1, 1, 0, 60.0, 1.0, 1.0, user)


def test_a_user_received_its_part_of_the_core_seconds() -> None:
    jobs = [job("ann", 3, 0, 0, 10), job("bob", 1, 0, 5, 15)]
    ann, bob = serve_by(jobs, lambda each: each.user, {"ann": 1.0, "bob": 3.0}, 15)
    assert (ann.name, ann.received, ann.owed) == ("ann", 0.75, 0.25)
    assert (bob.name, bob.wait_mean_s, bob.received, bob.owed) == ("bob", 5, 0.25, 0.75)


def test_without_shares_all_are_owed_the_same() -> None:
    jobs = [job("ann", 1, 0, 0, 10), job("bob", 1, 0, None, 9), job(None, 1, 0, 0, 10)]
    served = serve_by(jobs, lambda each: each.user, {}, 10)
    assert {each.name: each.owed for each in served} == pytest.approx(
        {"-": 1 / 3, "ann": 1 / 3, "bob": 1 / 3}
    )
    assert {each.name: each.wait_mean_s for each in served} == {"-": 0, "ann": 0, "bob": None}


def test_a_bank_is_owed_what_its_users_are() -> None:
    jobs = [job("ann", 1, 0, 0, 10), job("al", 1, 0, 0, 10), job("bob", 2, 0, 0, 10)]
    run = served_run("p", jobs, measure(jobs, 4), {"ann": 1.0, "al": 2.0, "bob": 1.0}, 4)
    assert {each.name: (each.received, each.owed) for each in run.banks} == {
        "a": (0.5, 0.75),
        "b": (0.5, 0.25),
    }


def test_mean_priority_is_that_of_pending_jobs() -> None:
    jobs = [
        job("ann", 1, 0, 8, 20, ((0, 10), (4, 30))),
        job("ann", 1, 0, 6, 20, ((2, 20),)),
        job("ann", 1, 0, None, 1),  # never had one
    ]
    assert mean_priority(jobs) == [(0, 10), (2, 15), (4, 25), (6, 30), (8, None)]


def test_longest_waits_say_what_was_free_and_who_went_first() -> None:
    jobs = [
        job("ann", 4, 0, 0, 100),
        job("bob", 3, 10, 160, 200),  # 90 s with nothing free, then 60 s behind the next one
        job("cid", 2, 5, 100, 160),
        job("dan", 1, 20, 110, 120),
    ]
    first, second = longest_waits(jobs, 4, count=2)
    assert (first.user, first.ncores, first.wait_s) == ("bob", 3, 150)
    assert first.why == (
        "fewer than 3 cores were free for 100% of the time; "
        "1 earlier jobs waited before it, 1 later ones passed it"
    )
    assert second.user == "cid"


def test_job_that_waited_although_enough_was_free_says_so() -> None:
    jobs = [job("ann", 4, 0, 0, 30), job("bob", 2, 20, 60, 70)]
    (waited,) = longest_waits(jobs, 4)
    assert waited.why.startswith("fewer than 2 cores were free for 25% of the time; else others")


def test_made_up_users_are_the_same_from_one_seed_and_few_submit_most() -> None:
    jobs = [of("", place) for place in range(1000)]
    dealt = [each.user for each in deal_users(jobs, 10, 7)]
    assert dealt == [each.user for each in deal_users(jobs, 10, 7)]
    assert dealt != [each.user for each in deal_users(jobs, 10, 8)]
    assert set(dealt) == {f"user{place}" for place in range(1, 11)}
    assert dealt.count("user1") > 2 * dealt.count("user10")


def test_userids_count_up_around_those_that_are_numbers() -> None:
    jobs = [of("user10"), of("user2"), of(str(FIRST_USERID)), of("7")]
    assert userids_of(jobs) == {
        "7": 7,
        str(FIRST_USERID): FIRST_USERID,
        "user2": FIRST_USERID + 1,
        "user10": FIRST_USERID + 2,
    }
