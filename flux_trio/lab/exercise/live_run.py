"""Run an exercise of the job manager of a live flux-core: each fresh instance is one of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from flux_trio.attach.handle import open_flux
from flux_trio.broker import Handle
from flux_trio.editions import CURRENT
from flux_trio.judge.known import load_shipped
from flux_trio.lab.exercise.acts import Act
from flux_trio.lab.exercise.findings import Ended, Findings
from flux_trio.lab.exercise.jury import Jury
from flux_trio.lab.exercise.live_flux import (
    NBROKERS,
    Attached,
    Live,
    LiveStage,
    TappedManager,
    follow,
    live_flux,
)
from flux_trio.lab.exercise.managing import MANAGER_ACTS
from flux_trio.lab.exercise.refusing import RefusingRouter
from flux_trio.lab.exercise.run import CLIENT, MANAGER_KIT, Acting, Report
from flux_trio.lab.exercise.stage import Stuck
from flux_trio.messages import FluxError, topics
from flux_trio.process.groups import unwrapping
from flux_trio.sim import make_machine
from flux_trio.trace import Record, Shown, Trace

KNOWN: Final = "flux-core-0.88"
SHOWN: Final = Shown(crossings=False)
CORES: Final = 4


async def exercise_flux(
    report: Report, *, acts: Sequence[Act] = MANAGER_ACTS, deadline_s: float = 10.0
) -> Findings:
    """Drive flux-core's job manager through those of the acts that can be played there.

    Known departures are not held against it; they are counted. Raises ProgramNotStarted.
    """
    jury = Jury(MANAGER_KIT.clauses(), CURRENT.name, SHOWN, load_shipped(KNOWN))
    jury.is_program = lambda name: name == topics.JOB_MANAGER
    ended: list[Ended] = []
    left = [each for each in acts if each.where(CURRENT) and not each.is_for_ours]
    while left:
        with tempfile.TemporaryDirectory(prefix="flux-trio-exercise-") as directory:
            done = await _played(left, report, jury, deadline_s, Path(directory))
        ended += done
        left = left[len(done) :]
    judgement = jury.judgement(ended)
    wanted = judgement.wanted()
    records = {each.n: each for each in jury.records if each.n in wanted}
    return Findings(ended, MANAGER_KIT.clauses(), judgement, records, jury.departures)


async def _played(
    acts: list[Act], report: Report, jury: Jury, deadline_s: float, directory: Path
) -> list[Ended]:
    """Play acts on one instance until one of them goes wrong."""
    jury.sit()
    report.sits(jury.is_program)
    async with live_flux(directory) as live, trio.open_nursery() as nursery:
        stage = await _stage(live, deadline_s, nursery)

        def take(record: Record) -> None:
            jury.observe(record)
            report.observe(record)
            stage.observe(record)

        nursery.start_soon(follow, live.trace, jury.nrecords, take)
        stage.attached.begin(topics.SCHED)
        done = await Acting(acts, report, jury).all_on(stage, must_serve=False)
        nursery.cancel_scope.cancel()
    return jury.all_at_rest(done)


async def _stage(live: Live, deadline_s: float, nursery: trio.Nursery) -> LiveStage:
    @asynccontextmanager
    async def visit(name: str, **_: object) -> AsyncIterator[Handle]:
        with unwrapping(Stuck, FluxError):
            async with open_flux(live.uri, name) as handle:
                yield handle

    handle = await nursery.start(_held_open, visit(CLIENT))
    stage = LiveStage(
        handle,
        TappedManager(live),
        topics.SCHED_READY,
        visit,
        deadline_s,
        RefusingRouter(Trace(time.time)),
        make_machine(NBROKERS, CORES),
        CURRENT,
    )
    stage.attached = Attached(live, nursery)
    return stage


async def _held_open(
    opened: AbstractAsyncContextManager[Handle], *, task_status: trio.TaskStatus[Handle]
) -> None:
    async with opened as handle:
        task_status.started(handle)
        await trio.sleep_forever()
