"""Policies with any jobs: what each promises holds for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.policies import POLICIES, Job, Pool
from flux_trio.policies.conservative import Conservative
from flux_trio.policies.profile import EVERYTHING, Place, Profile, Released
from tests.support.scheduling import Timed, machine, nodes, schedule, simulate, slots

TIMED = st.builds(
    lambda shape, duration, share, arrives: Timed(shape, duration, duration * share, arrives),
    st.one_of(
        st.builds(slots, st.integers(1, 3), st.integers(1, 2)),
        st.builds(nodes, st.integers(1, 3), st.integers(1, 3), whole=st.booleans()),
    ),
    st.integers(1, 20).map(float),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.integers(0, 30).map(float),
)
WORKLOADS = st.lists(TIMED, min_size=1, max_size=14)
ENDLESS = st.lists(
    st.builds(
        lambda job, is_endless: replace(job, duration=math.inf) if is_endless else job,
        TIMED,
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)
"""Workloads of which some jobs do not say when they end."""
PRIORITIZED = st.lists(
    st.builds(
        lambda job, priority: replace(job, priority=priority), TIMED, st.sampled_from([16, 17, 20])
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60)
@given(WORKLOADS)
def test_fifo_starts_in_order(jobs: list[Timed]) -> None:
    story = simulate(schedule("fifo", 3, 3), jobs)
    arrivals = sorted(range(len(jobs)), key=lambda jobid: (jobs[jobid].arrives, jobid))
    assert story.order == arrivals


@settings(max_examples=100)
@given(WORKLOADS)
def test_easy_never_delays_the_head(jobs: list[Timed]) -> None:
    """All have one priority, so that a head stays the head: each estimate is a promise."""
    story = simulate(schedule("easy", 3, 3), jobs)
    assert len(story.started) == len(jobs)
    for jobid, estimates in story.estimates.items():
        assert story.started[jobid] <= min(estimates)


@settings(max_examples=100)
@given(st.one_of(WORKLOADS, ENDLESS))
def test_conservative_delays_nobody(jobs: list[Timed]) -> None:
    story = simulate(schedule("conservative", 3, 3), jobs)
    assert len(story.started) == len(jobs)
    for jobid, estimates in story.estimates.items():
        assert estimates == sorted(estimates, reverse=True)
        assert story.started[jobid] <= min(estimates)


class Thorough(Conservative):
    """Looks at every job in every plan, and at every time."""

    def _improve(self, job: Job, profile: Profile, _released: Sequence[Released]) -> Place | None:
        return super()._improve(job, profile, EVERYTHING)


@settings(max_examples=100)
@given(st.one_of(WORKLOADS, ENDLESS))
def test_conservative_looks_wherever_there_is_something_to_find(jobs: list[Timed]) -> None:
    thorough = schedule("conservative", 3, 3)
    thorough.policy = Thorough(thorough.state)
    assert simulate(schedule("conservative", 3, 3), jobs) == simulate(thorough, jobs)


@settings(max_examples=100)
@given(PRIORITIZED, st.sampled_from(sorted(POLICIES)))
def test_every_job_runs_once(jobs: list[Timed], policy: str) -> None:
    story = simulate(schedule(policy, 3, 3), jobs)
    assert sorted(story.order) == list(range(len(jobs)))


@settings(max_examples=40)
@given(WORKLOADS, st.sampled_from(sorted(POLICIES)))
def test_the_same_workload_gives_the_same_story(jobs: list[Timed], policy: str) -> None:
    first, second = (simulate(schedule(policy, 3, 3), jobs) for _ in range(2))
    assert first == second


@settings(max_examples=60)
@given(WORKLOADS)
def test_easy_reserves_when_a_naive_look_says(jobs: list[Timed]) -> None:
    """The estimate is the first end of a grant at which what is free then would do."""
    made = schedule("easy", 3, 3)
    for jobid, job in enumerate(jobs):
        made.submit(Job(jobid, job.shape, job.duration, 16, 0.0))
    waiting = made.decide(0.0).waiting
    for head, start in waiting.items():
        ahead = [grant for grant in made.state.grants if grant.id < head.id]
        pool = Pool()
        pool.grow(machine(3, 3), -1)
        for grant in ahead:
            pool.mark_allocated(grant.allocation)
        for grant in sorted(ahead, key=lambda grant: grant.end):
            pool.give(grant.allocation)
            later = [other for other in ahead if other.end == grant.end and other is not grant]
            if pool.find(head.shape) is not None and start is not None:
                assert start == grant.end
                break
            assert start is None or start > grant.end or later
