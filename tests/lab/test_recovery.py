"""A recovery after a kill: it loses nothing, and who loses something is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flux_trio.lab import JobPlan, Plan, Recover, Setup, When, run_plan
from flux_trio.lab.plans.campaign_coverage import RECOVERED, NotedSituations
from flux_trio.lab.properties.recovery import Recovered
from flux_trio.lab.world import recovering
from flux_trio.messages import Errno
from flux_trio.store import fsck
from flux_trio.store.backup import restoring
from flux_trio.store.stores import StoreError
from flux_trio.store.view import View

THREE_RUN = When("job-exec.start", nth=3, type="response")


def plan_of(tool: Any) -> Plan:
    """Three jobs run when the instance is killed."""
    jobs = tuple(JobPlan(run=5.0) for _ in range(3))
    fault = Recover(THREE_RUN, tool)
    return Plan(1, nnodes=1, cores=4, jobs=jobs, faults=(fault,), store="sqlite", pages=2)


@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize("tool", ["nothing", "repair", "restore"])
def test_what_is_stored_is_there_after_a_recovery(tool: str, depth: Any) -> None:
    situations = NotedSituations()
    plan = replace(plan_of(tool), depth=depth)
    outcome = run_plan(plan, [situations.observe], properties=Setup().all_properties())
    assert outcome.problems == ()
    assert RECOVERED + tool in situations.occurred


def test_values_that_a_repair_leaves_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes that were being settled when the instance was killed are stored nowhere else."""
    whole = fsck._read_journal

    def without_settling(db: Any, path: Path) -> Any:
        found = whole(db, path)
        found.settling.texts.clear()
        return found

    monkeypatch.setattr(fsck, "_read_journal", without_settling)
    outcome = run_plan(plan_of("repair"), properties=[Recovered])
    assert "recovered" in outcome.broken


def test_a_job_that_a_restore_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = restoring._active_jobs
    monkeypatch.setattr(restoring, "_active_jobs", lambda store: list(whole(store))[:2])
    outcome = run_plan(plan_of("restore"), properties=[Recovered])
    assert [each for each in outcome.problems if "a fatal exception" in each]


def test_tool_that_fails_is_named_and_the_instance_starts_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise StoreError(Errno.EIO, "it cannot be restored")

    monkeypatch.setattr(recovering, "restore", fails)
    outcome = run_plan(plan_of("restore"))
    assert outcome.problems == ("error: before the instance started again: it cannot be restored",)


def test_settling_is_under_way_when_the_instance_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    class Noting(View):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            seen.append(bool(given[1]))

    monkeypatch.setattr(fsck, "View", Noting)
    run_plan(plan_of("repair"))
    assert any(seen)


def test_a_job_that_waits_in_a_restored_copy_is_not_called_stuck() -> None:
    """All queues of the copy are stopped, also the anonymous one, which its checkpoint lacks."""
    killed = Recover(When("job-exec.start", type="response"), "restore")
    jobs = (JobPlan(run=5.0), JobPlan(at=3.0))
    plan = Plan(1, jobs=jobs, faults=(killed,), depth="stack", store="sqlite")
    assert run_plan(plan).problems == ()
