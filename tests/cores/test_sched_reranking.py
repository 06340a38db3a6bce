"""Many new priorities at once: in slices, with nothing decided in between."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.sched.reranking import SLICE_JOBS
from flux_trio.cores.turns import SetTimer, TimerFired
from tests.support.sched_script import SchedScript, alloc, answers, jobspec, tell
from tests.support.scheduling import machine

MANY = [[jobid, 1] for jobid in range(1000, 1000 + SLICE_JOBS)]


@pytest.fixture
def script() -> SchedScript:
    ready = SchedScript()
    ready.attach(machine(2, 2))
    ready.turn(alloc(9, jobspec(4)))
    ready.turn(alloc(1, jobspec(4)), alloc(2, jobspec(4)))
    return ready


def timers(actions: list[Any]) -> list[SetTimer]:
    return [each for each in actions if isinstance(each, SetTimer)]


def test_nothing_is_decided_until_all_have_their_places(script: SchedScript) -> None:
    first = script.turn(tell("prioritize", jobs=[*MANY, [2, 99]]), tell("free", id=9))
    (timer,) = timers(first)
    assert timer.at == script.now
    assert answers(first) == []
    assert [each["id"] for each in answers(script.turn(TimerFired(timer.key)))] == [2]


def test_a_job_that_is_asked_for_anew_keeps_what_it_is_asked_for_with(script: SchedScript) -> None:
    again = alloc(1, jobspec(4), priority=500)
    script.turn(tell("cancel", id=1), tell("prioritize", jobs=[*MANY, [1, 7]]), again)
    freed = script.turn(tell("free", id=9), tell("prioritize", jobs=[[2, 99]]))
    assert [each["id"] for each in answers(freed)][-1] == 1
