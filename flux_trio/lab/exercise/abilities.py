"""The acts for what a scheduler may be without: constraints (RFC 31) and gpus."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.lab.exercise.acts import Ability, Acts
from flux_trio.lab.exercise.machines import NGPUS
from flux_trio.lab.exercise.nodes import drain, undrain
from flux_trio.lab.exercise.sched_jobs import DOUBLE, NNODES, waits
from flux_trio.lab.exercise.stage import LONG_S, Stage, all_have, many

ABILITY_ACTS: Final = Acts()

CONSTRAINTS: Final = frozenset({Ability.CONSTRAINTS})
GPUS: Final = frozenset({Ability.GPUS})

ALL_THREE: Final[dict[str, Any]] = {"properties": ["fast", "big", "quiet"]}  # node 3 alone
MATCHED: Final[tuple[tuple[dict[str, Any], int], ...]] = (
    ({"properties": ["fast"]}, 3),
    ({"properties": ["^fast"]}, 1),
    ({"properties": ["fast", "^quiet", "big"]}, 1),
    ({"hostlist": ["node[08,11],login"]}, 3),
    ({"ranks": ["0,2-3"]}, 3),
    ({"not": [{"properties": ["big"]}]}, 1),
    ({"or": [{"properties": ["^fast"]}, {"hostlist": ["login"]}, {"ranks": ["1"]}]}, 3),
    ({"and": [{"properties": ["fast"]}, {"properties": ["big"]}, {"ranks": ["0,3"]}]}, 1),
)
"""Constraints, each with the number of nodes that match it."""


@ABILITY_ACTS.act(
    "jobs have constraints",
    "each gets nodes that match all that it asks for, and is denied more nodes than match",
    (*(f"31.constraints.{number}" for number in range(2, 9)), "27.deny.1", "28.criteria.3"),
    needs=CONSTRAINTS,
)
async def constrained(stage: Stage) -> None:
    for constraint, nnodes in MATCHED:
        await stage.submit(nnodes=nnodes, exclusive=True, constraints=constraint)
        too_large = await stage.submit(nnodes=nnodes + 1, constraints=constraint)
        stage.hopeless.add(too_large)
        await stage.event(too_large, "clean", "27.deny.1")
    nobody = await stage.submit(constraints={"properties": ["fast", "unknown"]})
    stage.hopeless.add(nobody)
    await stage.event(nobody, "clean", "27.deny.1")


@ABILITY_ACTS.act(
    "the node that a job asks for is in use, and then drained",
    "the job waits, though others are free, and is not denied",
    ("28.criteria.3", "28.offline.3", "28.online.3"),
    needs=CONSTRAINTS,
)
async def constrained_and_drained(stage: Stage) -> None:
    running = await stage.submit(nnodes=1, exclusive=True, constraints=ALL_THREE, run_s=LONG_S)
    await stage.event(running, "start")
    waiting = await waits(stage, "31.constraints.2", nnodes=1, constraints=ALL_THREE)
    await drain(stage, "3")
    await stage.cancel(running)
    await stage.event(running, "clean")
    await waits(stage, "28.offline.3", nnodes=1, constraints=ALL_THREE)
    stage.must_wait(waiting, "28.offline.3")
    await undrain(stage, "3")
    await stage.event(waiting, "clean", "28.online.3")


@ABILITY_ACTS.act(
    "jobs ask for gpus",
    "each gets as many, no gpu is given twice, and more than there are are denied",
    ("25.resources.7", DOUBLE, "27.deny.1", "27.free.5"),
    needs=GPUS,
)
async def with_gpus(stage: Stage) -> None:
    ngpus, most = sum(NGPUS.values()), max(NGPUS.values())
    await stage.submit(ntasks=ngpus, gpus_per_task=1)
    await stage.submit(nnodes=len(NGPUS), gpus_per_task=1)
    await stage.submit(gpus_per_task=most)
    too_large = [
        await stage.submit(gpus_per_task=most + 1),
        await stage.submit(ntasks=ngpus + 1, gpus_per_task=1),
        await stage.submit(nnodes=NNODES, gpus_per_task=1),
    ]
    stage.hopeless.update(too_large)
    await all_have(stage, too_large, "clean", "27.deny.1")
    running = await many(stage, ngpus, gpus_per_task=1, run_s=LONG_S)
    await all_have(stage, running, "start")
    waiting = await waits(stage, DOUBLE, gpus_per_task=1)
    await stage.cancel(running[ngpus // 2])
    await stage.event(waiting, "clean", "27.free.5")
    for jobid in running:
        await stage.cancel(jobid)
