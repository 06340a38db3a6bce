"""Since which record a property over the trace is broken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flux_trio.faults import JobPlan, Plan, over_trace
from flux_trio.faults.telling import place_of_break
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
