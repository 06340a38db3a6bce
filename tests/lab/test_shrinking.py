"""What shrinking tries: a smaller plan each time, none twice, and none that cannot be played."""

from __future__ import annotations

import msgspec
import pytest

from flux_trio.lab import Crash, JobPlan, Plan, When, draw_plan, shrink
from flux_trio.lab.catalogue import CrashTogether
from flux_trio.lab.catalogue.places import Module
from flux_trio.lab.plans.files import check_plan
from flux_trio.lab.plans.workload import OwnerRequest
from flux_trio.lab.stories.shrinking import RUNS_MAX
from flux_trio.messages import topics

CRASH = Crash("sched", When(topics.SCHED_ALLOC), back=3.0)


def test_a_few_parts_that_are_needed_are_found_among_many_in_few_tries() -> None:
    needed = (JobPlan(ntasks=3), JobPlan(ntasks=4))
    jobs = [JobPlan(at=float(place)) for place in range(20)]
    jobs[4], jobs[13] = needed
    plan = Plan(seed=1, jobs=tuple(jobs), faults=(CRASH, Crash("kvs", 7), CRASH))
    tried: list[bytes] = []

    def breaks(smaller: Plan) -> bool:
        tried.append(msgspec.json.encode(smaller))
        ntasks = {job.ntasks for job in smaller.jobs}
        return {3, 4} <= ntasks and any(each.module == "kvs" for each in smaller.faults)

    small = shrink(plan, "", breaks).plan
    assert [job.ntasks for job in small.jobs] == [3, 4]
    assert [each.module for each in small.faults] == ["kvs"]
    assert len(tried) == len(set(tried)) < 100


@pytest.mark.parametrize("seed", range(20))
def test_every_plan_that_is_tried_can_be_played(seed: int) -> None:
    ntried = 0

    def breaks(smaller: Plan) -> bool:
        nonlocal ntried
        ntried += 1
        check_plan(smaller)
        return ntried % 3 == 0

    shrink(draw_plan(seed), "", breaks)
    assert 0 < ntried <= RUNS_MAX


def test_no_plan_is_tried_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_trio.lab.stories.shrinking.SECONDS_MAX", -1.0)
    plan = draw_plan(1)
    assert shrink(plan, "", lambda _: True) == (plan, "-1 seconds were over")


def test_a_large_plan_is_tried_in_other_orders() -> None:
    """What the plan breaks in its own order needs all of it; in another order a part is enough."""
    plan = Plan(seed=7, jobs=(JobPlan(),) * 16, faults=(CRASH,))

    def breaks(tried: Plan) -> bool:
        return bool(tried.faults) and (
            len(tried.jobs) == 16 or (tried.seed == 9 and bool(tried.jobs))
        )

    small, limit = shrink(plan, "", breaks)
    assert (small.seed, len(small.jobs), limit) == (9, 1, "")


def test_limit_that_ends_the_search_is_told() -> None:
    jobs = tuple(JobPlan(at=float(place), ntasks=place + 1) for place in range(80))
    plan = Plan(seed=1, jobs=jobs)
    nothing_less = shrink(plan, "", lambda _: False)
    assert nothing_less == (plan, f"{RUNS_MAX} plans were tried")
    assert shrink(Plan(seed=1, jobs=(JobPlan(),)), "", lambda _: False).limit == ""


@pytest.mark.parametrize("modules", [("job-manager",), ("sched", "job-manager", "resource")])
def test_crash_of_several_modules_becomes_that_of_the_one_that_matters(
    modules: tuple[Module, ...],
) -> None:
    when = When(topics.SCHED_ALLOC)
    together = CrashTogether(modules, when, back=2.0)

    def breaks(tried: Plan) -> bool:
        return any(
            isinstance(each, CrashTogether | Crash)
            and "job-manager" in getattr(each, "modules", (getattr(each, "module", ""),))
            for each in tried.faults
        )

    small = shrink(Plan(seed=1, jobs=(JobPlan(),), faults=(together,)), "", breaks).plan
    assert small.faults == (Crash("job-manager", when),)


@pytest.mark.parametrize("needs_message", [False, True])
def test_request_at_a_late_message_keeps_no_job_that_only_brings_the_message(
    needs_message: bool,
) -> None:
    when = When(topics.JOB_SUBMIT, nth=8, side="send", type="response")
    asked = OwnerRequest(0.0, "cancel", job=1, when=when)
    plan = Plan(seed=1, jobs=(JobPlan(),) * 8, actions=(asked,))

    def breaks(tried: Plan) -> bool:
        return any(
            each.when.nth <= len(tried.jobs) if each.when else not needs_message
            for each in tried.actions
        )

    small = shrink(plan, "", breaks).plan
    assert len(small.jobs) == 1
    first = msgspec.structs.replace(when, nth=1)
    assert [each.when for each in small.actions] == [first if needs_message else None]
