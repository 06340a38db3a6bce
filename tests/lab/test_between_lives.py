"""Between two lives of the instance nobody speaks: what comes meanwhile waits for the next one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from flux_trio.lab import JobPlan, KillInstance, Plan, When, run_plan
from flux_trio.lab.catalogue import Holds, Strike
from flux_trio.lab.plans.plan import Depth
from flux_trio.messages import topics
from flux_trio.trace import Kind, Record
from tests.lab.test_catalogue import CASES

ASKED = When(topics.SCHED_ALLOC, nth=2)
KILL = KillInstance(ASKED, back=3.0)
OTHERS = [each for each in CASES if isinstance(each.fault, Strike)]


def between_lives(trace: Sequence[Record]) -> Sequence[Record]:
    """What is in the trace from the kill on, until the next life begins."""
    struck = msgspec.to_builtins(KILL)
    killed = next(
        place for place, each in enumerate(trace) if each.kind == Kind.FAULT and each.data == struck
    )
    lives = [place for place, each in enumerate(trace) if each.kind == Kind.CONFIG]
    return trace[killed + 1 : next(place for place in lives if place > killed)]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: type(case.fault).__name__)
def test_nobody_speaks_whatever_happens_at_the_moment_of_the_kill(case, depth: Depth) -> None:
    other = msgspec.structs.replace(case.fault, when=ASKED)
    jobs = (JobPlan(), *case.jobs)
    plan = Plan(seed=1, jobs=jobs, faults=(KILL, other), depth=depth)
    outcome = run_plan(plan)
    assert other in outcome.struck
    assert outcome.problems == () or other.holds is Holds.NO_ERROR
    kinds = {each.kind for each in between_lives(outcome.trace)}
    assert kinds <= {Kind.FAULT, Kind.CLOCK}
