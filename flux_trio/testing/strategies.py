"""Hypothesis strategies for jobspecs, R, workloads and fault plans; they need hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from flux_trio.formats import Jobspec, ResourceSet
from flux_trio.lab import JobPlan, Plan, draw_plan

_SEEDS = st.integers(0, 2**31)


def jobspecs(nnodes_max: int = 4, cores_max: int = 4) -> st.SearchStrategy[Jobspec]:
    """Jobspecs (RFC 14) that fit on `nnodes_max` nodes of `cores_max` cores.

    They pretend to run: `attributes.system.exec.test` says for how long, and how they end.
    """
    tests = st.fixed_dictionaries(
        {"run_duration": st.floats(0, 3600, allow_nan=False)},
        optional={"wait_status": st.sampled_from((0, 256, 15))},
    )
    return st.builds(
        _jobspec,
        nnodes=st.integers(1, nnodes_max),
        cores_per_task=st.integers(1, cores_max),
        duration=st.sampled_from((0.0, 0.5, 60.0, 3600.0)),
        test=tests,
    )


def _jobspec(nnodes: int, cores_per_task: int, duration: float, test: dict[str, Any]) -> Jobspec:
    return Jobspec.from_command(
        ["true"],
        nnodes=nnodes,
        cores_per_task=cores_per_task,
        duration=duration,
        attributes={"system.exec.test": test},
    )


def resource_sets(nnodes_max: int = 8, cores_max: int = 8) -> st.SearchStrategy[ResourceSet]:
    """Resource sets (R, RFC 20) of 1 to `nnodes_max` ranks, each with some cores and GPUs."""
    bits = st.integers(1, (1 << cores_max) - 1)
    ranks = st.dictionaries(
        st.integers(0, nnodes_max - 1), st.tuples(bits, st.integers(0, 3)), min_size=1
    )
    return ranks.map(_resources)


def _resources(found: dict[int, tuple[int, int]]) -> ResourceSet:
    entries = [(rank, cores, gpus) for rank, (cores, gpus) in sorted(found.items())]
    return ResourceSet.build(entries, "node{}".format)


def job_plans(span_s: float = 30.0) -> st.SearchStrategy[JobPlan]:
    """Jobs of a plan that are submitted in the first `span_s` seconds."""
    times = st.floats(0, span_s, allow_nan=False).map(lambda at: round(at, 1))
    return st.builds(
        JobPlan,
        at=times,
        ntasks=st.integers(1, 5),
        nnodes=st.integers(0, 2),
        run=st.sampled_from((0.0, 0.5, 2.0, 7.0)),
        limit=st.sampled_from((0.0, 1.0, 10.0)),
        urgency=st.integers(0, 31),
    )


def workloads(njobs_max: int = 10) -> st.SearchStrategy[tuple[JobPlan, ...]]:
    """1 to `njobs_max` jobs."""
    return st.lists(job_plans(), min_size=1, max_size=njobs_max).map(tuple)


def fault_plans(njobs_max: int = 5, nfaults_max: int = 2) -> st.SearchStrategy[Plan]:
    """Plans with jobs, requests and faults, as `flux-trio fuzz` draws them from seeds.

    Hypothesis makes the seed, and the numbers of jobs and faults, small; `flux_trio.lab.shrink`
    makes the rest of a plan small.
    """
    return st.builds(
        draw_plan, _SEEDS, njobs=st.integers(1, njobs_max), nfaults=st.integers(0, nfaults_max)
    )
