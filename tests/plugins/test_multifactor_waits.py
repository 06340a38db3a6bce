"""The limits of multifactor, and jobs that wait for something else, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from multifactor import LIMITS_LATER

from flux_trio.protocols import JobState
from flux_trio.testing import HarnessJob, PluginHarness

ANN = 1001
NODES = "max-resources-user-limit"
Start = Callable[..., PluginHarness]
Edit = Callable[..., None]


def submit(harness: PluginHarness, nnodes: int, *depends: dict[str, str]) -> HarnessJob:
    attributes: dict[str, Any] = {"system.job": {"name": "alone"}}
    if depends:
        attributes["system.dependencies"] = [*depends]
    return harness.submit(userid=ANN, nnodes=nnodes, ntasks=nnodes, attributes=attributes)


def at(harness: PluginHarness, seconds: int) -> dict[str, str]:
    return {"scheme": "begin-time", "value": str(harness.now + seconds)}


@pytest.fixture
def harness(start: Start, edit: Edit) -> PluginHarness:
    """Two nodes may be in use."""
    edit("user", "ann", "bank=physics", "max_nodes=2")
    return start()


def test_singleton_lets_a_job_go_on_for_whose_end_it_waits(harness: PluginHarness) -> None:
    """Else the large one waits for the room of the singleton, which waits for its end."""
    first, large = submit(harness, 1), submit(harness, 2)
    single = submit(harness, 1, {"scheme": "singleton", "value": ""})
    assert large.dependencies == {NODES}
    assert single.dependencies == {"singleton", LIMITS_LATER}
    first.run()
    assert large.state == JobState.SCHED
    large.run()
    assert single.state == JobState.SCHED


def test_limits_are_checked_when_nothing_else_holds_a_job(harness: PluginHarness) -> None:
    late, first = submit(harness, 1, at(harness, 50)), submit(harness, 2)
    assert first.state == JobState.SCHED  # the late one does not count yet
    said = harness.request("job-manager.explain", {"id": late.id})["said"][-1]["text"]
    assert said.endswith("; limits are checked when nothing else holds the job")
    harness.advance(51)
    assert late.dependencies == {NODES, LIMITS_LATER}
    first.run()
    assert late.state == JobState.SCHED
    assert harness.query("multifactor")["counters"]["admitted_nodes"] == {"(1001, 'physics')": 1}


def test_job_with_room_goes_on_when_nothing_else_holds_it(harness: PluginHarness) -> None:
    job = submit(harness, 2, at(harness, 50), at(harness, 55))
    harness.advance(51)
    assert LIMITS_LATER in job.dependencies
    assert job.state == JobState.DEPEND
    harness.advance(5)
    assert job.state == JobState.SCHED


def test_job_waits_on_when_the_plugin_is_loaded_again(
    harness: PluginHarness, load_again: Edit
) -> None:
    late, first = submit(harness, 1, at(harness, 50)), submit(harness, 2)
    load_again(harness)
    harness.advance(51)
    assert late.dependencies == {NODES, LIMITS_LATER}
    first.run()
    assert late.state == JobState.SCHED
