"""What seeds visit beside their faults: it is drawn, and it occurs."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from flux_trio.cores.pages import page_size
from flux_trio.lab import (
    JobPlan,
    Linger,
    OwnerRequest,
    Plan,
    Reload,
    Setup,
    When,
    draw_plan,
    play_seed,
    run_plan,
)
from flux_trio.lab.plans import campaign_coverage as s
from flux_trio.lab.plans.rare_requests import MANY_JOBS, SMALL, with_visits
from flux_trio.lab.stories.running import PlanRun
from flux_trio.messages import Response, topics
from flux_trio.trace import Record

SEEDS = range(60)


@pytest.mark.gate
def test_worlds_of_many_jobs_meet_the_second_page_a_queue_update_and_the_history() -> None:
    wanted = {s.SECOND_PAGE, s.MOVE, s.HISTORY}
    many = [seed for seed in range(200) if len(draw_plan(seed).jobs) >= MANY_JOBS][:8]
    assert len(many) == 8
    for seed in many:
        result = play_seed(seed)
        assert wanted <= result.drawn
        assert not wanted - result.occurred, seed


def test_what_is_drawn_occurs_in_some_world() -> None:
    left = {s.SECOND_PAGE, s.HISTORY, s.HISTORY_AFTER_PURGE, s.MOVE, s.MOVE_AGAIN, s.RELEASED}
    for seed in SEEDS:
        if not left:
            break
        if left & s.drawn(draw_plan(seed)):
            left -= play_seed(seed).occurred
    assert left == set()


def test_visits_leave_the_rest_of_a_plan_as_it_was_drawn() -> None:
    plan = Plan(1, jobs=(JobPlan(), JobPlan(at=1.0)), actions=(OwnerRequest(2.0, "purge"),))
    for number in range(50):
        seen = with_visits(Random(number), plan, 30.0, is_to_grow=True)
        assert tuple(replace(each, is_single=False) for each in seen.jobs[:2]) == plan.jobs
        assert seen.actions[:1] == plan.actions


def test_a_plan_has_small_pages_while_something_happens_and_others_have_not() -> None:
    usual = 1000
    sizes: dict[int, set[int]] = {0: set(), SMALL: set()}

    def run_with(pages: int) -> PlanRun:
        def note(record: Record) -> None:
            if record.kind == "recv":
                sizes[pages].add(page_size(usual))

        return PlanRun(Plan(1, jobs=(JobPlan(),), pages=pages), [note])

    runs = [run_with(pages) for pages in sizes]
    for _ in range(50):  # one after the other, and none is closed
        for plan_run in runs:
            assert plan_run.step()
            assert page_size(usual) == usual
    assert sizes == {0: {usual}, SMALL: {SMALL}}


def test_history_is_read_over_several_pages() -> None:
    jobs = tuple(JobPlan(at=number / 10, run=0.0) for number in range(5))
    asked = (
        OwnerRequest(60.0, "history"),
        OwnerRequest(61.0, "purge"),
        OwnerRequest(62.0, "history"),
    )
    told: list[list[int]] = []

    def note(record: Record) -> None:
        message = record.message
        if record.kind != "recv" or getattr(message, "topic", "") != topics.JOB_HISTORY:
            return
        if isinstance(message, Response) and isinstance(message.payload, dict):
            told.append(message.payload["jobs"])

    plan = Plan(1, nnodes=1, cores=4, jobs=jobs, actions=asked, pages=SMALL)
    situations = s.NotedSituations()
    outcome = run_plan(plan, [note, situations.observe], properties=Setup().all_properties())
    assert outcome.problems == ()
    assert [len(each) for each in told] == [5, 0]
    assert told[0] == sorted(told[0], reverse=True)
    assert {s.SECOND_PAGE, s.HISTORY_AFTER_PURGE} <= situations.occurred


def test_jobs_of_a_page_are_purged_before_job_list_gets_it() -> None:
    """It hangs when it has asked for the page, and then takes what waits in any order."""
    asked = When(topics.KVS_OWN.page, 4, "send", party=topics.JOB_LIST)
    again = Reload("job-list", When(topics.JOB_HISTORY, 1, "send", "response"))
    faults = (again, Linger("job-list", asked, 0.5))
    actions = (OwnerRequest(60.0, "history"), OwnerRequest(60.0, "purge", when=asked))
    plan = Plan(1, jobs=(JobPlan(), JobPlan()), actions=actions, faults=faults)
    noccurred = 0
    for seed in range(10):
        situations = s.NotedSituations()
        outcome = run_plan(replace(plan, seed=seed), [situations.observe])
        assert outcome.never_struck == outcome.problems == ()
        noccurred += s.PURGE_BEFORE_PAGE in situations.occurred
    assert 0 < noccurred < 10


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_a_held_job_is_moved_twice(depth: str) -> None:
    plan = Plan(
        1,
        jobs=(JobPlan(run=0.0, urgency=0, queue=0),),
        actions=(
            OwnerRequest(1.0, "move", queue=1),
            OwnerRequest(2.0, "move", queue=0),
            OwnerRequest(3.0, "urgency", value=16),
        ),
        queues=2,
        depth="stack" if depth == "stack" else "cores",
    )
    situations = s.NotedSituations()
    outcome = run_plan(plan, [situations.observe], properties=Setup().all_properties())
    assert outcome.problems == ()
    assert s.MOVE_AGAIN in situations.occurred
