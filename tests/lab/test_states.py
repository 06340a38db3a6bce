"""The states of cores as lines, and what a turn changes in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec
import pytest

from flux_trio.cores.ingest.core import IngestCore
from flux_trio.formats import format_fluid
from flux_trio.lab import Crash, JobPlan, Plan, When, run_plan
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.property import Property
from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.lab.stories.by_hand import ByHand
from flux_trio.lab.stories.states import WatchedRun, changed_lines, state_lines
from flux_trio.messages import Request, topics
from flux_trio.trace import Kind, Sink, record_to_json

PLAN = Plan(1, jobs=(JobPlan(),), faults=(Crash("sched", When(topics.SCHED_ALLOC), back=2.0),))


def test_state_has_a_line_for_each_place_that_is_not_empty() -> None:
    core = IngestCore()
    core.turn(1e9, [Request(topics.INGEST_SUBMIT, {"jobspec": {}}, 1, routes=("owner",))])
    lines = state_lines(core.dump())
    assert lines["backlog.waiting"] == '["job-ingest.submit of owner"]'
    assert {"0", '""', "[]", "{}", "null", "false"}.isdisjoint(lines.values())


def test_changes_of_a_place() -> None:
    before, after = {"a": "1", "b": "2", "d": "4"}, {"a": "1", "b": "3", "c": "5"}
    assert list(changed_lines(before, after)) == ["b: 2 -> 3", "c = 5", "d: 4 is gone"]


def test_each_turn_says_what_it_changes() -> None:
    plan_run = WatchedRun(PLAN)
    assert plan_run.play()
    (jobid,) = {(r.data or {})["id"] for r in plan_run.trace if r.kind == Kind.EVENT}
    asked = [
        line
        for change in plan_run.changes
        if change.module == "job-manager"
        for line in change.lines
        if line.startswith(f"parts.scheduler.requests.allocs.states[{format_fluid(jobid, 'f58')}]")
    ]
    sent, held = '"sched.alloc sent, not answered"', '"resources granted"'
    assert [line.partition("]")[2] for line in asked][:2] == [f" = {sent}", f": {sent} is gone"]
    assert any(line.endswith(f"{sent} -> {held}") for line in asked)
    (gone,) = [c for c in plan_run.changes if c.lines == ("the module is not there",)]
    assert gone.module == "sched"


def test_changes_say_which_records_are_of_their_turns() -> None:
    plan_run = WatchedRun(PLAN)
    assert plan_run.play()
    turns = sorted({(each.since, each.after) for each in plan_run.changes if each.lines})
    for (_, end), (begin, _) in itertools.pairwise(turns):
        assert end <= begin
    for each in plan_run.changes:
        records = [record for record in plan_run.trace if each.since < record.n <= each.after]
        actors = {
            name for record in records for name in (record.party, (record.data or {}).get("module"))
        }
        assert each.module in actors or not each.lines


def test_looking_changes_nothing() -> None:
    seen: list[bytes] = []
    WatchedRun(PLAN, [lambda record: seen.append(record_to_json(record))]).play()
    unseen: list[bytes] = []
    run_plan(PLAN, [lambda record: unseen.append(record_to_json(record))])
    assert seen == unseen


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_first_state_of_each_core_is_a_change_at_the_start(depth: Depth) -> None:
    with WatchedRun(msgspec.structs.replace(PLAN, depth=depth)) as plan_run:
        first = list(plan_run.changes)
        assert {(each.after, each.lines) for each in first} == {(0, ())}
        assert [each.module for each in first] == list(plan_run.world.modules)
        states = {each.module: each.state for each in first}
        assert "parts.scheduler.link.state = " in states["job-manager"]
        plan_run.play()
        assert plan_run.changes[: len(first)] == first


def test_module_that_is_gone_has_that_as_its_state() -> None:
    plan_run = WatchedRun(PLAN)
    plan_run.play()
    (gone,) = [each for each in plan_run.changes if each.lines == ("the module is not there",)]
    assert gone.state == "the module is not there"


class WatchedByHand(ByHand):
    """A watched run that is played by hand."""

    watched: WatchedRun

    def make_run(
        self, plan: Plan, sinks: Iterable[Sink], properties: Iterable[Property]
    ) -> WatchedRun:
        self.watched = WatchedRun(plan, sinks, properties, judge=WorldJudge())
        return self.watched


def test_turn_that_was_interrupted_says_what_it_changes_when_it_goes_on() -> None:
    """job-list says nothing when it hears of a job: its turn has no further record."""
    hand = WatchedByHand(PLAN)
    told = When(topics.JOB_JOURNAL, nth=2, type="response", party="job-list")
    record = hand.run_until(told).record
    before = len(hand.watched.changes)
    assert hand.step()
    assert hand.trace[-1] is record
    assert [each.module for each in hand.watched.changes[before:]] == ["job-list"]


def test_state_that_is_a_tuple_of_objects_has_lines_for_each() -> None:
    """As one line it would be cut, and a change of its end would not be seen."""
    plan_run = WatchedRun(Plan(1, jobs=(JobPlan(),)))
    plan_run.play()
    schedule = "context.schedule[0].grants: [0.0,"
    lines = [line for each in plan_run.changes for line in each.lines if line.startswith(schedule)]
    (jobid,) = plan_run.owner.ids.values()
    name = format_fluid(jobid, "f58")
    assert [line.partition(" -> ")[2].find(name) >= 0 for line in lines] == [True, False]
