"""limit-job-size."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flux_trio.config import JobSize, Limits, parse_config
from flux_trio.formats import Jobspec
from flux_trio.jobtap.builtins.limit_job_size import node_counts, size_problem
from tests.support.playing import simulated_jobs
from tests.support.scheduling import machine

NO_MOST = JobSize(math.inf, math.inf, math.inf)
NO_LEAST = JobSize(0, 0, 0)
CONFIG = parse_config("""
[policy.limits.job-size.max]
nnodes = 3
ncores = 8
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.debug.policy.limits.job-size]
max = { nnodes = 1, ngpus = 0 }
min = { ncores = 2 }
[queues.big.policy.limits.job-size]
max = { nnodes = -1, ncores = -1 }
min = { nnodes = 2 }
""")


def problem(limits: Limits, queue: str | None = None, **resources: Any) -> str | None:
    jobspec = Jobspec.from_command(["true"], **resources)
    return size_problem(jobspec, limits, queue, machine(8, 4, 1))


@pytest.mark.parametrize(
    ("most", "resources", "text"),
    [
        (JobSize(3, math.inf, math.inf), {"nnodes": 3}, None),
        (
            JobSize(3, math.inf, math.inf),
            {"nnodes": 4},
            "requested nnodes (4) exceeds policy limit of 3",
        ),
        (JobSize(3, math.inf, math.inf), {"ntasks": 12}, None),
        (JobSize(3, math.inf, math.inf), {"ntasks": 33}, None),  # nowhere: the scheduler says so
        (
            JobSize(3, math.inf, math.inf),
            {"ntasks": 13},
            "requested slots need 4 nodes, which exceeds policy limit of 3",
        ),
        (
            JobSize(math.inf, 8, math.inf),
            {"ntasks": 3, "cores_per_task": 3},
            "requested ncores (9) exceeds policy limit of 8",
        ),
        (
            JobSize(math.inf, 8, math.inf),
            {"ntasks": 10, "nnodes": 2},
            "requested ncores (10) exceeds policy limit of 8",
        ),
        (
            JobSize(math.inf, math.inf, 0),
            {"gpus_per_task": 1, "ntasks": 2},
            "requested ngpus (2) exceeds policy limit of 0",
        ),
    ],
)
def test_what_exceeds_a_limit(most: JobSize, resources: dict[str, Any], text: str | None) -> None:
    """33.limits.2, 33.limits.3, 33.limits.4"""
    assert problem(Limits(max=most), **resources) == text


@pytest.mark.parametrize(
    ("least", "resources", "text"),
    [
        (JobSize(2, 0, 0), {"nnodes": 2}, None),
        (JobSize(2, 0, 0), {"nnodes": 1}, "requested nnodes (1) is under policy limit of 2"),
        (JobSize(2, 0, 0), {"ntasks": 2}, None),
        (
            JobSize(2, 0, 0),
            {"ntasks": 1},
            "requested slots fit on at most 1 nodes, under policy limit of 2",
        ),
        (
            JobSize(9, 0, 0),
            {"ntasks": 20},
            "requested slots fit on at most 8 nodes, under policy limit of 9",
        ),
        (JobSize(0, 2, 0), {}, "requested ncores (1) is under policy limit of 2"),
        (JobSize(0, 0, 1), {}, "requested ngpus (0) is under policy limit of 1"),
    ],
)
def test_what_is_under_a_limit(least: JobSize, resources: dict[str, Any], text: str | None) -> None:
    """33.limits.5"""
    assert problem(Limits(min=least), **resources) == text


@pytest.mark.parametrize(
    ("least", "most", "resources", "text"),
    [
        (2, 3, {"ntasks": 9}, None),
        (4, 5, {"ntasks": 3}, "requested slots fit on at most 3 nodes, under policy limit of 4"),
        (2, 3, {"ntasks": 4, "gpus_per_task": 1}, "requested slots need 4 nodes, which exceeds"),
        (2, 3, {"ntasks": 2, "cores_per_task": 2}, None),
    ],
)
def test_job_without_a_node_count_needs_a_layout_within_both_limits(
    least: int, most: int, resources: dict[str, Any], text: str | None
) -> None:
    """readings: Limits on nodes."""
    limits = Limits(max=JobSize(most, math.inf, math.inf), min=JobSize(least, 0, 0))
    found = problem(limits, **resources)
    assert (found is None) == (text is None)
    assert (found or "").startswith(text or "")


def test_nodes_of_several_kinds_are_filled_from_the_largest_on() -> None:
    inventory = machine(2, 8).union(machine(3, 2, first=2)).union(machine(1, 1, first=5))
    request = Jobspec.from_command(["true"], ntasks=9, cores_per_task=2).request
    assert node_counts(request, inventory) == (3, 5)


def test_the_queue_is_named() -> None:
    text = problem(Limits(max=JobSize(1, math.inf, math.inf)), "debug", nnodes=2)
    assert text == "requested nnodes (2) exceeds policy limit of 1 for queue debug"


async def test_each_queue_overrides_the_general_limits_one_by_one(autojump_clock):
    """33.validation.2, 33.policy.4: rejected at submission; -1 lifts a general limit."""
    async with simulated_jobs(config=CONFIG) as jobs:
        await jobs.submit(nnodes=3)
        await jobs.submit(nnodes=4, queue="big")
        await jobs.submit(ntasks=2, queue="debug")
        refused = {
            "requested nnodes (4) exceeds policy limit of 3 for queue batch": {"nnodes": 4},
            "requested ncores (9) exceeds policy limit of 8 for queue batch": {"ntasks": 9},
            "requested ncores (9) exceeds policy limit of 8 for queue debug": {
                "queue": "debug",
                "ntasks": 9,
            },
            "requested ncores (1) is under policy limit of 2 for queue debug": {"queue": "debug"},
            "requested nnodes (2) exceeds policy limit of 1 for queue debug": {
                "queue": "debug",
                "nnodes": 2,
            },
            "requested ngpus (2) exceeds policy limit of 0 for queue debug": {
                "queue": "debug",
                "ntasks": 2,
                "gpus_per_task": 1,
            },
            "requested slots fit on at most 1 nodes, under policy limit of 2 for queue big": {
                "queue": "big"
            },
        }
        for text, request in refused.items():
            assert await jobs.refused(**request) == text


async def test_without_limits_any_size_goes(autojump_clock):
    """33.limits.1"""
    async with simulated_jobs() as jobs:
        await jobs.submit(nnodes=4, ntasks=16)
