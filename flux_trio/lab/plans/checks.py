"""Checks of a plan that its types do not make: most of them look at several values.

A plan names the jobs, queues, nodes and cores of its world by their numbers, and all must be there.
Only a job may ask for ranks that are not there: then it never runs.
"""

from __future__ import annotations

from msgspec.structs import replace

from flux_trio.config import check_policy_name
from flux_trio.formats import FormatError
from flux_trio.lab.catalogue import Fault
from flux_trio.lab.catalogue.places import LONGEST_S, RANK, check_number
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JOB_ACTIONS


def check_names(plan: Plan) -> None:
    """Raise FormatError if the plan names a job, queue, node or core that its world lacks."""
    check_policy_name(plan.policy, "policy")
    for place, job in enumerate(plan.jobs):
        _check_queue(plan, job.queue, f"jobs[{place}].queue")
        if job.after is not None:
            jobs = "the place of one of the {} jobs"
            check_number(job.after, jobs, len(plan.jobs), f"jobs[{place}].after")
    for place, asked in enumerate(plan.actions):
        if asked.what in JOB_ACTIONS:
            jobs = "the place of one of the {} jobs"
            check_number(asked.job, jobs, len(plan.jobs), f"actions[{place}].job")
        if asked.what == "move" and asked.queue is None:
            expected = "the number of the queue to which the job is to be moved"
            raise FormatError(expected, None, f"actions[{place}].queue")
        _check_queue(plan, asked.queue, f"actions[{place}].queue")
        check_number(asked.rank, RANK, plan.nnodes, f"actions[{place}].rank")
    for place, fault in enumerate(plan.faults):
        try:
            fault.check(plan)
        except FormatError as error:
            raise error.at(f"faults[{place}]") from None
    _check_clock(plan.faults)


def on_machine(plan: Plan, **sizes: int) -> Plan:
    """Return the plan for fewer nodes or cores; the last one stands for those that are gone."""
    smaller = replace(plan, **sizes)
    return replace(
        smaller,
        actions=tuple(
            replace(each, rank=min(each.rank, smaller.nnodes - 1)) for each in plan.actions
        ),
        faults=tuple(each.on_machine(smaller) for each in plan.faults),
    )


def _check_queue(plan: Plan, queue: int | None, where: str) -> None:
    if queue is not None:
        among = "the number of one of the {} named queues"
        check_number(queue, among, plan.queues, where)


def _check_clock(faults: tuple[Fault, ...]) -> None:
    """Raise FormatError if the faults together may move the clock by more than LONGEST_S."""
    moved = 0.0
    for place, fault in enumerate(faults):
        name, seconds = fault.clock_moves
        moved += seconds
        if moved > LONGEST_S:
            expected = f"at most {LONGEST_S:.0f} seconds by which all faults of time move the clock"
            raise FormatError(expected, moved, f"faults[{place}].{name}")
