"""Jobspecs of every shape, and one that is none."""

from __future__ import annotations

from typing import Any

from flux_trio import jobtap
from flux_trio.formats import Idset, Jobspec, ResourceSet, format_fluid
from flux_trio.messages import FluxError, topics
from flux_trio.sim import make_machine
from flux_trio.testing import EPOCH
from tests.support.scenarios import Stage, scenario

MIXED = ResourceSet.build(
    [(0, 3, 0), (1, 3, 0)],
    lambda rank: f"node{rank}",
    properties={"fast": Idset.parse("0"), "big": Idset.parse("0-1")},
)
MORTAL = make_machine(nnodes=2, cores_per_node=2).with_times(EPOCH, EPOCH + 1000.0)


def jobspec(**system: Any) -> dict[str, Any]:
    """One slot of a core, with these keys in attributes.system."""
    attributes = {f"system.{key.replace('_', '-')}": value for key, value in system.items()}
    attributes |= {"system.exec.test": {"run_duration": 5.0}}
    return dict(Jobspec.from_command(["true"], attributes=attributes).json)


def with_resources(resources: dict[str, Any], **task_count: int) -> dict[str, Any]:
    """Another resource graph, and how many tasks."""
    task = {"command": ["true"], "slot": "task", "count": task_count}
    return {**jobspec(duration=30.0), "resources": [resources], "tasks": [task]}


def vertex(type_: str, count: int, *below: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A vertex and what it is made of."""
    found = {"type": type_, "count": count, **more}
    return {**found, "with": list(below)} if below else found


class TakesFluids(jobtap.Plugin):
    """Knows the reserved scheme, and waits for nothing."""

    name = "takes-fluids"

    @jobtap.on("job.dependency.fluid")
    def take(self, job: jobtap.Job, dependency: jobtap.Dependency) -> None:
        """Let it be."""


@scenario(plugins=(TakesFluids(),))
async def jobspecs(stage: Stage) -> None:
    """Graphs with and without nodes, whole nodes, attributes; one jobspec is refused."""
    core = vertex("core", 1)
    slot = vertex("slot", 1, vertex("core", 2), label="task")
    node = vertex("node", 2, vertex("slot", 1, core, label="task"))
    whole = vertex("node", 1, vertex("slot", 1, core, label="task"), exclusive=True)
    first = await stage.submit_jobspec(with_resources(slot, per_slot=1))
    antecedent = format_fluid(first, "f58plain")
    await stage.settle(6.0)
    wanted = [
        with_resources(node, total=2),
        with_resources(whole, per_slot=1),
        jobspec(dependencies=[{"scheme": "after", "value": antecedent}]),
        jobspec(dependencies=[{"scheme": "fluid", "value": "f1", "type": "in", "scope": "user"}]),
        jobspec(constraints={"hostlist": ["node0"]}, preemptible_after=1.5),
    ]
    for each in wanted:
        await stage.submit_jobspec(each)
        await stage.settle(6.0)
    try:
        await stage.call(topics.INGEST_SUBMIT, jobspec={"version": 1}, urgency=16)
    except FluxError:
        await stage.settle()


@scenario(machine=MORTAL)
async def instance_ends(stage: Stage) -> None:
    """Jobs without a duration, and with one, in an instance that has an end."""
    await stage.submit(5.0)
    await stage.submit(5.0, duration=30.0)
    await stage.settle(10.0)


@scenario(machine=MIXED)
async def constrained(stage: Stage) -> None:
    """A job for each operator of RFC 31: all get rank 0."""
    fast, slow = {"properties": ["fast"]}, {"properties": ["^fast", "big"]}
    for constraint in (
        fast,
        {"hostlist": ["node0"]},
        {"ranks": ["0"]},
        {"not": [slow]},
        {"or": [{"ranks": ["7"]}, fast]},
        {"and": [fast, {"properties": ["big", "^other"]}]},
    ):
        await stage.submit_jobspec(jobspec(duration=30.0, constraints=constraint))
        await stage.settle(6.0)
