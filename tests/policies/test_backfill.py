"""FIFO, EASY and conservative backfill: what they promise, in cases and over random workloads."""

from __future__ import annotations

import math

import pytest

from flux_trio.formats import Idset, parse_constraint
from flux_trio.policies import POLICIES, Allocation, Job, Pool, Schedule, Shape
from flux_trio.policies.conservative import RESERVATIONS_MAX
from flux_trio.policies.easy import BACKFILL_DEPTH
from tests.support.scheduling import Timed, machine, nodes, schedule, simulate, slots


def submit(
    to: Schedule, jobid: int, shape: Shape, duration: float = 10.0, priority: int = 16
) -> None:
    to.submit(Job(jobid, shape, duration, priority, 0.0))


def started(by: Schedule, now: float = 0.0) -> list[int]:
    return [job.id for job, _ in by.decide(now).started]


@pytest.fixture(params=sorted(POLICIES))
def any_schedule(request: pytest.FixtureRequest) -> Schedule:
    return schedule(request.param)


@pytest.fixture(params=["easy", "conservative"])
def backfilling(request: pytest.FixtureRequest) -> Schedule:
    return schedule(request.param)


class TestEveryPolicy:
    def test_serves_by_priority_then_submit_time_then_id(self, any_schedule: Schedule) -> None:
        for jobid, priority, t_submit in [(1, 16, 3.0), (2, 16, 2.0), (4, 20, 9.0), (3, 16, 2.0)]:
            any_schedule.submit(Job(jobid, slots(1), 10.0, priority, t_submit))
        assert started(any_schedule) == [4, 2, 3, 1]

    def test_a_new_priority_counts_at_once(self, any_schedule: Schedule) -> None:
        """27.prioritize.6."""
        submit(any_schedule, 1, nodes(4))
        assert started(any_schedule) == [1]
        submit(any_schedule, 2, nodes(4))
        submit(any_schedule, 3, nodes(4))
        assert started(any_schedule) == []
        any_schedule.prioritize(3, 20)
        any_schedule.free(1)
        assert started(any_schedule) == [3]

    def test_head_starts_when_the_last_overdue_job_ends(self, any_schedule: Schedule) -> None:
        """The head came when the jobs were overdue; they end one after another, later still."""
        submit(any_schedule, 1, nodes(2), 10.0)
        submit(any_schedule, 2, nodes(2), 20.0)
        assert started(any_schedule) == [1, 2]
        submit(any_schedule, 3, nodes(4), 10.0)
        assert started(any_schedule, 30.0) == []
        any_schedule.free(2)
        assert started(any_schedule, 31.0) == []
        any_schedule.free(1)
        assert started(any_schedule, 40.0) == [3]

    def test_a_better_job_starts_before_a_head_that_waits_on(self, any_schedule: Schedule) -> None:
        submit(any_schedule, 1, nodes(2), 10.0)
        submit(any_schedule, 2, nodes(3), 10.0)
        assert started(any_schedule) == [1]
        submit(any_schedule, 3, nodes(1), 30.0, priority=20)
        decisions = any_schedule.decide(0.0)
        assert [job.id for job, _ in decisions.started] == [3]
        assert [job.id for job in decisions.waiting] == [2]

    def test_a_withdrawn_head_lets_the_next_one_start(self, any_schedule: Schedule) -> None:
        submit(any_schedule, 1, nodes(3), math.inf)
        submit(any_schedule, 2, nodes(2), math.inf)
        submit(any_schedule, 3, nodes(1), math.inf)
        assert 1 in started(any_schedule)
        any_schedule.withdraw(2)
        assert started(any_schedule) in ([3], [])
        assert len(any_schedule.state.queue) == 0

    def test_a_rank_that_comes_up_is_used(self, any_schedule: Schedule) -> None:
        """28.online.3."""
        any_schedule.offline(0b1)
        submit(any_schedule, 1, nodes(4))
        assert started(any_schedule) == []
        any_schedule.online(0b1)
        assert started(any_schedule) == [1]

    def test_nothing_starts_on_a_rank_that_went_down(self, any_schedule: Schedule) -> None:
        """28.offline.3."""
        submit(any_schedule, 1, nodes(4))
        assert started(any_schedule) == [1]
        any_schedule.offline(0b11)
        submit(any_schedule, 2, nodes(3))
        any_schedule.free(1)
        assert started(any_schedule) == []

    def test_what_is_grown_is_used(self, any_schedule: Schedule) -> None:
        submit(any_schedule, 1, nodes(5))
        assert any_schedule.shortfall(nodes(5)) is not None
        assert started(any_schedule) == []
        any_schedule.grow(machine(1, 1, first=4), -1)
        assert any_schedule.shortfall(nodes(5)) is None
        assert started(any_schedule) == [1]

    def test_what_was_marked_is_not_given_out(self, any_schedule: Schedule) -> None:
        """27.hello.12."""
        any_schedule.mark(7, machine(3, 1))
        submit(any_schedule, 1, nodes(2))
        assert started(any_schedule) == []
        assert any_schedule.free(7) == 0
        assert started(any_schedule) == [1]

    def test_cores_of_a_mark_that_are_not_ours_are_left_out(self, any_schedule: Schedule) -> None:
        """27.hello.12."""
        any_schedule.mark(7, machine(3, 20, 9))
        submit(any_schedule, 1, nodes(2))
        assert started(any_schedule) == []
        any_schedule.free(7)
        submit(any_schedule, 2, nodes(2, 2))
        assert started(any_schedule) == [1]

    def test_never_ends_after_the_instance(self) -> None:
        made = schedule("fifo", expiration=100.0)
        submit(made, 1, slots(1), 10.0)
        submit(made, 2, slots(1), 1000.0)
        submit(made, 3, slots(1), math.inf)
        assert [grant.end for _, grant in made.decide(50.0).started] == [60.0, 100.0, 100.0]


class TestShrink:
    def test_free_ranks_leave_at_once_and_held_ones_with_their_last_job(self) -> None:
        """28.shrink.6, 28.release.1: each once."""
        made = schedule("fifo", 3, 2)
        made.mark(1, machine(1, 1))
        made.mark(2, machine(2, 2).difference(machine(1, 1)))
        made.shrink(0b111)
        assert made.holders(0b111) == [1, 2]
        assert made.pop_left() == 0b100
        assert made.free(1) == 0
        assert made.free(2) == 0b011
        assert made.leaving == 0

    def test_a_rank_that_is_grown_again_does_not_leave(self) -> None:
        made = schedule("fifo", 1, 2)
        made.mark(1, machine(1, 1))
        made.shrink(0b1)
        made.grow(machine(1, 2), -1)
        submit(made, 2, slots(1))
        submit(made, 3, slots(1))
        assert started(made) == [2]
        assert made.free(1) == 0
        assert started(made) == [3]


class TestFifo:
    def test_nobody_passes_the_head(self) -> None:
        made = schedule("fifo")
        made.mark(9, machine(2, 1))
        submit(made, 1, nodes(3))
        submit(made, 2, nodes(1))
        decisions = made.decide(0.0)
        assert decisions.started == []
        assert [(job.id, start) for job, start in decisions.waiting.items()] == [(1, None)]

    def test_looks_at_a_head_that_does_not_fit_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = schedule("fifo")
        made.mark(9, machine(2, 1))
        submit(made, 1, nodes(3))
        made.decide(0.0)
        monkeypatch.setattr(Pool, "find", _must_not_look)
        submit(made, 2, nodes(1))
        assert started(made) == []


def _must_not_look(_pool: Pool, _shape: Shape) -> Allocation | None:
    raise AssertionError("looked again though nothing was freed")


class TestBackfill:
    def test_a_job_that_ends_in_time_passes(self, backfilling: Schedule) -> None:
        submit(backfilling, 1, nodes(3), 10.0)
        submit(backfilling, 2, nodes(3), 10.0)
        submit(backfilling, 3, nodes(1), 10.0)
        submit(backfilling, 4, nodes(1), 5.0)
        decisions = backfilling.decide(100.0)
        assert [job.id for job, _ in decisions.started] == [1, 3]
        assert {job.id: start for job, start in decisions.waiting.items()}[2] == 110.0

    def test_a_job_that_would_delay_the_head_waits(self, backfilling: Schedule) -> None:
        submit(backfilling, 1, nodes(3), 10.0)
        submit(backfilling, 2, nodes(4), 10.0)
        submit(backfilling, 3, nodes(1), 11.0)
        submit(backfilling, 4, nodes(1), math.inf)
        assert started(backfilling) == [1]

    def test_a_long_job_passes_beside_the_reservation(self, backfilling: Schedule) -> None:
        submit(backfilling, 1, nodes(2), 10.0)
        submit(backfilling, 2, nodes(3), 10.0)
        submit(backfilling, 3, nodes(1), math.inf)
        submit(backfilling, 4, nodes(1), math.inf)
        assert started(backfilling) == [1, 3]

    def test_one_that_comes_later_passes_too(self, backfilling: Schedule) -> None:
        submit(backfilling, 1, nodes(3), 10.0)
        submit(backfilling, 2, nodes(4), 10.0)
        assert started(backfilling) == [1]
        submit(backfilling, 3, nodes(1), 6.0)
        assert started(backfilling, 5.0) == []
        submit(backfilling, 4, nodes(1), 5.0)
        assert started(backfilling, 5.0) == [4]

    def test_an_early_end_brings_the_estimate_forward(self, backfilling: Schedule) -> None:
        submit(backfilling, 1, nodes(2), 10.0)
        submit(backfilling, 2, nodes(2), 20.0)
        submit(backfilling, 3, nodes(3), 10.0)
        assert list(backfilling.decide(0.0).waiting.values()) == [20.0]
        backfilling.free(2)
        assert list(backfilling.decide(5.0).waiting.values()) == [10.0]

    def test_a_longer_grant_moves_the_estimate_back(self, backfilling: Schedule) -> None:
        """27.expiration.12."""
        submit(backfilling, 1, nodes(2), 10.0)
        submit(backfilling, 2, nodes(3), 10.0)
        assert list(backfilling.decide(0.0).waiting.values()) == [10.0]
        assert backfilling.extend(1, 30.0)
        submit(backfilling, 3, nodes(2), 25.0)
        decisions = backfilling.decide(1.0)
        assert [job.id for job, _ in decisions.started] == [3]
        assert list(decisions.waiting.values()) == [30.0]

    def test_without_ends_the_head_has_no_estimate_and_is_not_starved(
        self, backfilling: Schedule
    ) -> None:
        submit(backfilling, 1, nodes(2), math.inf)
        submit(backfilling, 2, nodes(4), math.inf)
        submit(backfilling, 3, nodes(1), math.inf)
        submit(backfilling, 4, nodes(1), 10.0)
        decisions = backfilling.decide(0.0)
        assert [job.id for job, _ in decisions.started] == [1, 4]
        assert next(iter(decisions.waiting.values())) is None

    def test_a_better_job_that_starts_moves_the_estimate_back(self, backfilling: Schedule) -> None:
        submit(backfilling, 1, nodes(2), 10.0)
        submit(backfilling, 2, nodes(4), 10.0)
        assert list(backfilling.decide(0.0).waiting.values()) == [10.0]
        submit(backfilling, 3, nodes(1), 30.0, priority=20)
        assert list(backfilling.decide(0.0).waiting.values()) == [30.0]

    def test_an_overdue_grant_holds_up_nobody_else(self, backfilling: Schedule) -> None:
        submit(backfilling, 1, nodes(3), 10.0)
        submit(backfilling, 2, nodes(4), 10.0)
        assert started(backfilling) == [1]
        submit(backfilling, 3, nodes(1), 10.0)
        assert started(backfilling, 50.0) == []
        backfilling.free(1)
        assert started(backfilling, 60.0) == [2]

    def test_the_head_waits_for_ranks_that_are_down_and_others_pass(
        self, backfilling: Schedule
    ) -> None:
        backfilling.offline(0b1)
        submit(backfilling, 1, nodes(4), 10.0)
        submit(backfilling, 2, nodes(3), math.inf)
        decisions = backfilling.decide(0.0)
        assert [job.id for job, _ in decisions.started] == [2]
        assert list(decisions.waiting.values()) == [None]


class TestDepth:
    def test_easy_looks_only_so_far(self) -> None:
        made = schedule("easy")
        submit(made, 0, nodes(3), 10.0)
        submit(made, 1, nodes(4), 10.0)
        for jobid in range(2, 2 + BACKFILL_DEPTH):
            submit(made, jobid, nodes(2), 5.0)
        submit(made, 5000, nodes(1), 5.0)
        assert started(made) == [0]
        made.withdraw(2)
        submit(made, 4000, nodes(1), 5.0)  # now within the depth
        assert started(made) == [4000]

    def test_conservative_reserves_only_so_far(self) -> None:
        made = schedule("conservative")
        submit(made, 0, nodes(4), 10.0)
        for jobid in range(1, 100):
            submit(made, jobid, nodes(4), 5.0)
        assert started(made) == [0]
        estimates = made.decide(0.0).waiting.values()
        assert list(estimates) == [10.0 + 5.0 * n for n in range(RESERVATIONS_MAX)]

    @pytest.mark.parametrize(("policy", "jobs"), [("easy", 3000), ("conservative", 300)])
    def test_jobs_that_moved_up_are_looked_at_in_the_same_turn(
        self, policy: str, jobs: int
    ) -> None:
        made = schedule(policy, 4000)
        made.mark(9999, machine(1, 1))
        submit(made, 0, nodes(4000), math.inf)
        for jobid in range(1, jobs + 1):
            submit(made, jobid, nodes(1), 5.0)
        assert len(started(made)) == jobs


class TestConservative:
    def test_gives_everybody_a_place_in_order(self) -> None:
        made = schedule("conservative")
        submit(made, 1, nodes(3), 10.0)
        submit(made, 2, nodes(4), 10.0)
        submit(made, 3, nodes(2), 10.0)
        submit(made, 4, nodes(2), 10.0)
        submit(made, 5, nodes(1), 10.0)
        decisions = made.decide(0.0)
        assert [job.id for job, _ in decisions.started] == [1, 5]
        assert {job.id: start for job, start in decisions.waiting.items()} == {
            2: 10.0,
            3: 20.0,
            4: 20.0,
        }

    def test_a_place_that_a_job_leaves_behind_is_taken_in_the_same_turn(self) -> None:
        """Job 5 gains nothing from node 0, which was freed, but job 3 moves from node 1 to it."""
        properties = {"first": Idset.of([0]), "second": Idset.of([1])}
        on_first, on_second = (
            nodes(1, constraint=parse_constraint({"properties": [name]})) for name in properties
        )
        made = schedule("conservative", 2, properties=properties)
        submit(made, 1, on_first, 100.0)
        submit(made, 2, on_second, 50.0)
        submit(made, 3, nodes(1), 10.0)
        submit(made, 4, on_first, 100.0)
        submit(made, 5, on_second, 30.0)
        assert list(made.decide(0.0).waiting.values()) == [50.0, 100.0, 60.0]
        made.free(1)
        assert list(made.decide(5.0).waiting.values()) == [15.0, 50.0]

    def test_a_better_job_may_cost_a_place(self) -> None:
        made = schedule("conservative")
        submit(made, 1, nodes(4), 10.0)
        submit(made, 2, nodes(4), 10.0)
        made.decide(0.0)
        submit(made, 3, nodes(4), 10.0, priority=20)
        waiting = made.decide(0.0).waiting
        assert {job.id: start for job, start in waiting.items()} == {3: 10.0, 2: 20.0}

    def test_a_job_ahead_moves_up_before_one_that_comes_gets_a_place(self) -> None:
        """Job 4 starts at 1.0 and leaves its place at 20.0; job 5 would run into 21.0."""
        made = schedule("conservative", 3)
        for jobid, (count, duration) in enumerate([(3, 20.0), (1, 20.0), (3, 50.0), (2, 20.0)], 1):
            submit(made, jobid, nodes(count), duration)
        assert list(made.decide(0.0).waiting.values()) == [20.0, 40.0, 20.0]
        made.free(1)
        assert list(made.decide(1.0).waiting.values()) == [40.0]
        submit(made, 5, nodes(1), 500.0)
        waiting = made.decide(1.0).waiting
        assert {job.id: start for job, start in waiting.items()} == {3: 21.0, 5: 71.0}

    def test_no_job_without_an_end_passes_one_that_waits_for_an_end_that_is_unknown(self) -> None:
        """Job 4 waits for all nodes; it has no place until job 3 leaves its own at infinity."""
        made = schedule("conservative", 3, 2)
        submit(made, 1, nodes(2), math.inf)
        submit(made, 2, nodes(1, 2), math.inf)
        assert started(made, 0.0) == [1, 2]
        submit(made, 3, nodes(1, 2), math.inf)
        submit(made, 4, nodes(3), math.inf)
        submit(made, 5, nodes(1, 2), math.inf)
        assert started(made, 1.0) == []
        made.free(2)
        assert started(made, 2.0) == [3]
        made.free(1)
        assert started(made, 3.0) == [5]
        submit(made, 6, nodes(2, 2), math.inf)
        assert started(made, 3.0) == []
        made.free(3)
        assert started(made, 4.0) == []
        made.free(5)
        assert started(made, 5.0) == [4]


def test_conservative_starves_no_job_that_never_ends() -> None:
    """Job 2 has a place behind job 1, which ends early; then it starts, and so do all others."""
    jobs = [
        Timed(nodes(3), 2.0, 2.0, 1.0),
        Timed(nodes(3), 4.0, 3.0, 0.0),
        Timed(nodes(2), math.inf, 3.0, 0.0),
        Timed(nodes(3), 4.0, 3.0, 3.0),
    ]
    assert sorted(simulate(schedule("conservative", 3, 3), jobs).started) == [0, 1, 2, 3]
