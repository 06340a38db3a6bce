"""The page of one job: the events of its endings are those that jobs have in an instance."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from flux_trio.messages import topics
from flux_trio.testing import InstanceHarness, InstanceJob

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "one-job.md"
ROW: Final = re.compile(r"^\| ([a-z ,]+) \| (`[^|]+`) \|", re.MULTILINE)
BUSY: Final[dict[str, Any]] = {"nnodes": 4, "ntasks": 16, "run_s": 100.0}


def on_a_busy_machine(instance: InstanceHarness, **shape: Any) -> InstanceJob:
    instance.submit(**BUSY)
    return instance.submit(**shape)


def completed(instance: InstanceHarness) -> InstanceJob:
    return instance.submit()


def failed(instance: InstanceHarness) -> InstanceJob:
    return instance.submit(attributes={"system.exec.test.wait_status": 256})


def canceled_while_pending(instance: InstanceHarness) -> InstanceJob:
    job = on_a_busy_machine(instance)
    job.cancel()
    return job


def canceled_while_running(instance: InstanceHarness) -> InstanceJob:
    job = instance.submit(run_s=100.0)
    job.cancel()
    return job


def out_of_time(instance: InstanceHarness) -> InstanceJob:
    return instance.submit(run_s=100.0, duration=10.0)


def denied(instance: InstanceHarness) -> InstanceJob:
    job = on_a_busy_machine(instance, nnodes=4, ntasks=4)
    instance.request(topics.RESOURCE_EXCLUDE, {"targets": "3"})
    return job


def lost_node(instance: InstanceHarness) -> InstanceJob:
    job = instance.submit(nnodes=4, ntasks=4, run_s=100.0)
    instance.request(topics.RESOURCE_DOWN, {"targets": "3"})
    return job


def dependency_failed(instance: InstanceHarness) -> InstanceJob:
    first = on_a_busy_machine(instance)
    dependency = [{"scheme": "afterok", "value": str(first.id)}]
    job = instance.submit(attributes={"system.dependencies": dependency})
    first.cancel()
    return job


ENDINGS: Final[dict[str, Callable[[InstanceHarness], InstanceJob]]] = {
    "it completes": completed,
    "its command fails": failed,
    "it is canceled while it waits": canceled_while_pending,
    "it is canceled while it runs": canceled_while_running,
    "its time limit expires": out_of_time,
    "its dependency fails": dependency_failed,
    "the scheduler denies it": denied,
    "one of its nodes fails": lost_node,
}


def test_each_ending_is_a_row() -> None:
    assert [ending for ending, _ in ROW.findall(PAGE.read_text())] == list(ENDINGS)


@pytest.mark.parametrize("ending", ENDINGS)
def test_events_of_each_ending_are_those_of_its_row(ending: str) -> None:
    with InstanceHarness() as instance:
        job = ENDINGS[ending](instance)
        instance.wait(job)
        names = [
            f"{event.name}({event.context['type']})" if event.name == "exception" else event.name
            for event in job.events
        ]
    row = dict(ROW.findall(PAGE.read_text()))[ending]
    assert row == " ".join(f"`{name}`" for name in names)
