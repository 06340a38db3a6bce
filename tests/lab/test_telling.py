"""Since which record a property over the trace is broken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flux_trio.lab import JobPlan, OwnerRequest, Plan, When, over_trace
from flux_trio.lab.catalogue import CrashTogether, NodesDown
from flux_trio.lab.stories.telling import place_of_break, played_lines
from flux_trio.trace import Kind, Record

PLAN = Plan(seed=1, jobs=(JobPlan(),) * 5)


@pytest.mark.parametrize("nth", [1, 2, 3, 25, 40])
def test_place_is_that_of_the_record_that_breaks_it(nth: int) -> None:
    checks = 0
    places: list[int] = []

    @over_trace("few-events")
    def few_events(trace: Sequence[Record]) -> str:
        nonlocal checks
        checks += 1
        found = [record.n for record in trace if record.kind == Kind.EVENT]
        places[:] = max(places, found, key=len)
        return "too many" if len(found) >= nth else ""

    assert place_of_break(PLAN, "few-events", [few_events]) == places[nth - 1]
    assert checks < 40, "of about 400 records"


def test_property_that_no_trace_keeps_has_no_place() -> None:
    always = over_trace("always")(lambda _trace: "broken")
    assert place_of_break(PLAN, "always", [always]) == 0


def test_request_is_told_with_what_it_asks_for_and_when() -> None:
    when = When("sched.alloc", type="response")
    actions = (
        OwnerRequest(1.0, "cancel", job=1),
        OwnerRequest(0.0, "urgency", job=0, value=31, when=when),
        OwnerRequest(2.0, "duration", job=1, seconds=60.0),
        OwnerRequest(3.5, "drain", rank=2),
        OwnerRequest(4.0, "queue-stop", queue=1),
        OwnerRequest(5.0, "purge"),
    )
    plan = Plan(1, queues=2, jobs=(JobPlan(), JobPlan()), actions=actions)
    assert [line for line in played_lines(plan) if line.startswith("request")] == [
        "request cancel: at 1, job 1",
        "request urgency: job 0, value 31, when response sched.alloc number 1 is received",
        "request duration: at 2, job 1, seconds 60",
        "request drain: at 3.5, rank 2",
        "request queue-stop: at 4, queue 1",
        "request purge: at 5",
    ]


def test_names_and_numbers_that_a_fault_has_several_of_are_told_as_such() -> None:
    faults = (CrashTogether(("sched", "resource"), 4, back=1.0), NodesDown((0, 2), 7, back=3.0))
    assert [line for line in played_lines(Plan(1, faults=faults)) if line.startswith("fault")] == [
        "fault crash-together: modules sched,resource, when 4, back 1",
        "fault nodes-down: ranks 0,2, when 7, back 3",
    ]
