"""A fact that is kept twice and differs is named at the next pause."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.lab import draw_plan, run_plan
from flux_trio.lab.properties.kept_twice import KEPT_TWICE

WRONG: tuple[tuple[str, type[Any], str, Any], ...] = (
    ("counted", JobManagerCore, "counts", {"": {"run": -1}}),
    ("estimated", SchedCore, "estimates", {7: 1.0}),
)


@pytest.mark.parametrize(("name", "core", "fact", "value"), WRONG)
def test_difference_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, core: type[Any], fact: str, value: Any
) -> None:
    plan = draw_plan(1)
    assert run_plan(plan, properties=KEPT_TWICE).problems == ()
    monkeypatch.setattr(core, fact, property(lambda _: value))
    problems = run_plan(plan, properties=KEPT_TWICE).problems
    assert [each.partition(":")[0] for each in problems] == [name]
