"""A campaign plays seeds in order, and knows which transitions its worlds took with which fault."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from flux_trio.lab import (
    Crash,
    JobPlan,
    Outcome,
    Plan,
    Reached,
    Unload,
    When,
    all_faults,
    all_transitions,
    draw_plan,
    play_seed,
    play_seeds,
    run_plan,
)
from flux_trio.lab.plans.reached import TABLES, name_of_fault, transitions_noted
from flux_trio.lab.stories.campaign import AHEAD, main_property
from flux_trio.messages import topics
from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState
from tests.support.at_once import AtOnce


def test_results_come_in_the_order_of_the_seeds() -> None:
    with ThreadPoolExecutor(1) as pool:
        results = list(play_seeds(range(3, 6), pool, nworkers=1))
    assert [each.seed for each in results] == [3, 4, 5]
    assert [each.plan for each in results] == [draw_plan(seed) for seed in (3, 4, 5)]
    assert all(each.broken == "" and each.nsteps > 0 for each in results)


def test_only_so_many_seeds_are_under_way() -> None:
    asked = []

    def seeds() -> Iterator[int]:
        for seed in range(100):
            asked.append(seed)
            yield seed

    results = play_seeds(seeds(), AtOnce(), nworkers=1)
    next(results)
    assert asked == list(range(AHEAD))


def test_transitions_of_a_world_are_noted_and_the_tables_stay_as_they_are() -> None:
    before = {name: table.rows for name, table in TABLES.items()}
    result = play_seed(0)
    assert {name: table.rows for name, table in TABLES.items()} == before
    assert all(TABLES[name].rows is rows for name, rows in before.items())
    assert result.taken <= set(all_transitions())
    assert "ALLOC IDLE ALLOC" in result.taken


def test_transition_that_only_a_fault_brings_about() -> None:
    """A pending request is lost with its scheduler."""
    lost = "ALLOC PENDING LOST"
    crash = Crash("sched", When(topics.SCHED_ALLOC))
    asked = "ALLOC IDLE ALLOC"
    with transitions_noted() as without:
        run_plan(Plan(1, jobs=(JobPlan(),)), [without.observe])
    with transitions_noted() as noted:
        run_plan(Plan(1, jobs=(JobPlan(),), faults=(crash,)), [noted.observe])
    assert lost not in without.taken
    assert without.after == {}
    assert {lost, asked} <= noted.taken
    reached = Reached()
    reached.add(without.taken, without.after)
    reached.add(noted.taken, noted.after)
    assert reached.struck == {"crash sched": 1}
    assert lost not in reached.never_after("crash sched")
    assert lost in reached.never_after("unload sched")
    assert lost not in reached.never_taken()


def test_transition_before_a_fault_does_not_count_with_it() -> None:
    finish = Crash("sched", When(topics.SCHED_FREE))  # the job has run
    with transitions_noted() as noted:
        run_plan(Plan(1, jobs=(JobPlan(),), faults=(finish,)), [noted.observe])
    assert "JOB RUN FINISH" in noted.taken
    assert "JOB RUN FINISH" not in noted.after["crash sched"]


def test_each_fault_of_a_plan_has_a_name() -> None:
    names = all_faults()
    assert name_of_fault(Unload("job-exec", 3)) in names
    drawn = {name_of_fault(each) for seed in range(300) for each in draw_plan(seed).faults}
    assert drawn <= set(names)
    assert len(set(names)) == len(names)


def test_main_property_is_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not that the job is active at rest, which follows from it."""
    monkeypatch.setitem(ALLOC.rows[AllocState.PENDING], AllocEvent.LOST, AllocState.PENDING)
    crash = Crash("sched", When(topics.SCHED_ALLOC))
    outcome = run_plan(Plan(1, jobs=(JobPlan(),), faults=(crash,)))
    causes = [each.clause for each in outcome.violations if each.cause is None]
    assert len(outcome.broken) > 1
    assert main_property(outcome) == causes[0]


@pytest.mark.parametrize(
    ("problems", "named"),
    [
        ((), ""),
        (("inactive: \u0192 is active at rest",), "inactive"),
        (("inactive: \u0192 is active at rest", "error: sched raised KeyError: 1"), "error"),
    ],
)
def test_error_of_a_core_is_named_first(problems: tuple[str, ...], named: str) -> None:
    assert main_property(Outcome(Plan(1), problems)) == named
