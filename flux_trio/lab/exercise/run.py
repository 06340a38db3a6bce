"""Run an exercise: open an instance, play the acts, judge the trace as it comes.

An act ends when a clause is broken in it, and the next one begins in a fresh instance: what follows
from one mistake is not held against the program again, and nothing is waited for in vain.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from flux_trio.config import Config, ExecConfig
from flux_trio.editions import CLASSIC, Edition
from flux_trio.formats import ResourceSet
from flux_trio.instance import MODULES, Instance, Surroundings, open_instance
from flux_trio.judge import Clause, load_clauses
from flux_trio.lab.exercise.acts import Ability, Act
from flux_trio.lab.exercise.exec_jobs import CORES, NNODES
from flux_trio.lab.exercise.findings import Ended, Findings
from flux_trio.lab.exercise.jury import Jury
from flux_trio.lab.exercise.machines import (
    SCHED_MACHINE,
    old_store,
    sched_machine,
    store_with_old_job,
)
from flux_trio.lab.exercise.program import Driven, Program, ProgramNotStarted
from flux_trio.lab.exercise.refusing import RefusingRouter
from flux_trio.lab.exercise.stage import LOOK_S, Stage, Stuck
from flux_trio.lab.exercise.stored_events import EventNotingRouter
from flux_trio.messages import FluxError, topics
from flux_trio.services.module_process import system_clock
from flux_trio.sim import make_machine
from flux_trio.store.stores import MemoryStore
from flux_trio.trace import Record, Trace

CLIENT: Final = "exercise"  # the client that acts


@dataclass(frozen=True, slots=True)
class Kit:
    """What is exercised: the module that the instance lacks, and whom the clauses bind.

    `actor` and `rfcs` select the clauses. The program serves once a request `ready` is answered:
    its own, or that of the scheduler to it. `lacks` are modules that the instance is without, too.
    """

    module: str
    ready: str
    actor: str
    rfcs: tuple[int, ...]
    machine: ResourceSet
    is_simulated: bool
    lacks: tuple[str, ...] = ()
    store: Callable[[], MemoryStore] = old_store
    router: Callable[[Trace], RefusingRouter] = RefusingRouter

    def clauses(self) -> list[Clause]:
        """Return the clauses that bind the program, in the order of the registry."""
        return [
            each
            for each in load_clauses().values()
            if each.actor == self.actor and each.rfc in self.rfcs
        ]


SCHED_KIT: Final = Kit(
    topics.SCHED, topics.SCHED_READY, "scheduler", (20, 27, 28), SCHED_MACHINE, is_simulated=True
)
EXEC_KIT: Final = Kit(
    topics.JOB_EXEC,
    topics.EXEC_HELLO,
    "exec",
    (32,),
    make_machine(NNODES, CORES),
    is_simulated=False,
)
MANAGER_KIT: Final = Kit(
    topics.JOB_MANAGER,
    topics.SCHED_READY,
    "job-manager",
    (20, 21, 27, 32, 33),
    SCHED_MACHINE,
    is_simulated=True,
    lacks=(topics.JOB_LIST,),  # it asks for a journal, of which no RFC knows
    store=store_with_old_job,
    router=EventNotingRouter,
)


def sched_kit(without: frozenset[Ability]) -> Kit:
    """Return what a scheduler needs that is without some abilities."""
    machine = sched_machine(
        has_gpus=Ability.GPUS not in without, has_properties=Ability.CONSTRAINTS not in without
    )
    return replace(SCHED_KIT, machine=machine)


MakeProgram = Callable[[Instance], Driven]
"""Makes the program that serves an instance."""

Surround = Callable[[Kit, Path], Surroundings]
"""Returns the surroundings of an instance; the path is a directory of its own."""

LATER: Final = 0.5
"""The part of the deadline that is left to the program once something was waited for in vain,"""
LATER_S_MIN: Final = 1.0
"""at least so many seconds, since the instance needs some, too."""


async def _starts(stage: Stage) -> None:
    await stage.serve()


START: Final = Act("the program is started", "it serves", (), _starts)
"""What comes before all acts: if it ends with something broken, no act is played."""


class Report:
    """Is told how an exercise gets on while it runs; this one ignores it."""

    def sits(self, is_program: Callable[[str], bool]) -> None:
        """An instance begins; `is_program` says of the name of a peer whether it is the program."""

    def observe(self, record: Record) -> None:
        """Something has happened in the instance."""

    def begins(self, act: Act) -> None:
        """An act begins."""

    def ended(self, ended: Ended) -> None:
        """An act has ended."""


@dataclass(frozen=True, slots=True)
class Part:
    """A program, and the acts that it is driven through."""

    program: MakeProgram
    acts: Sequence[Act]


def process(command: Sequence[str]) -> MakeProgram:
    """Return what starts `command` as a process."""
    return lambda instance: Program(command, instance.uri, instance.owner_token)


def on_this_machine(kit: Kit, directory: Path) -> Surroundings:
    """Return the surroundings of an instance to which processes connect."""
    return Surroundings(
        inventory=kit.machine,
        userid=os.getuid(),
        epoch=time.time(),
        clock=system_clock(),
        statedir=directory,
        listen=True,
    )


async def exercise(
    kit: Kit,
    parts: Sequence[Part],
    report: Report,
    *,
    surround: Surround = on_this_machine,
    deadline_s: float = 10.0,
    edition: Edition = CLASSIC,
) -> Findings:
    """Drive each program through its acts, in instances that speak `edition`.

    A program that has ended is started again at the next act. Raises ProgramNotStarted, and Stuck
    if a program does not serve when it is started for the first time.
    """
    ended: list[Ended] = []
    jury = Jury(kit.clauses(), edition.name)
    for part in parts:
        acts = [each for each in part.acts if each.where(edition)]
        left = acts
        while left:
            is_first = left is acts
            left_s = deadline_s
            if any(each.stuck for each in ended):
                left_s = min(deadline_s, max(deadline_s * LATER, LATER_S_MIN))
            play = _Play(kit, part.program, left, report, jury, left_s, edition)
            with tempfile.TemporaryDirectory(prefix="flux-trio-exercise-") as directory:
                done = await play.on(surround(kit, Path(directory)), must_serve=is_first)
            ended += done
            left = left[len(done) :] if done[-1].act is not START else []
    judgement = jury.judgement(ended)
    wanted = judgement.wanted()
    records = {each.n: each for each in jury.records if each.n in wanted}
    return Findings(ended, kit.clauses(), judgement, records)


@dataclass(frozen=True, slots=True)
class _Play:
    """Acts that are played until one of them goes wrong."""

    kit: Kit
    program: MakeProgram
    acts: Sequence[Act]
    report: Report
    jury: Jury
    deadline_s: float
    edition: Edition

    async def on(self, given: Surroundings, *, must_serve: bool) -> list[Ended]:
        """Play acts on one instance; return those that have ended, at least one."""
        trace = Trace(given.clock or trio.current_time, self.jury.nrecords)
        given = replace(
            given,
            trace=trace,
            log_sinks=(self.jury.log,),
            store=self.kit.store,
            make_router=self.kit.router,
            modules=tuple(
                name for name in MODULES if name not in (self.kit.module, *self.kit.lacks)
            ),
        )
        simulated = ExecConfig(simulate=self.kit.is_simulated)
        config = Config(edition=self.edition.name, exec=simulated)
        self.jury.sit()
        trace.add_sink(self.jury.observe)
        trace.add_sink(self.report.observe)
        async with open_instance(config, given) as instance:
            router = instance.router
            assert isinstance(router, RefusingRouter)
            router.clients.add(CLIENT)
            async with instance.connect(CLIENT) as handle:
                router.own.add(handle.name)
                self.jury.is_program = router.is_program
                self.report.sits(router.is_program)
                stage = Stage(
                    handle,
                    self.program(instance),
                    self.kit.ready,
                    instance.connect,
                    self.deadline_s,
                    router,
                    self.kit.machine,
                    self.edition,
                )
                return await self._with(instance, stage, must_serve=must_serve)

    async def _with(self, instance: Instance, stage: Stage, *, must_serve: bool) -> list[Ended]:
        instance.trace.add_sink(stage.observe)
        try:
            done = await Acting(self.acts, self.report, self.jury).all_on(
                stage, must_serve=must_serve
            )
        finally:
            instance.trace.remove_sink(self.jury.observe)  # it judges what is at rest before
            await stage.program.end()
            instance.trace.remove_sink(stage.observe)
        return self.jury.all_at_rest(done)


@dataclass(frozen=True, slots=True)
class Acting:
    """Acts, who is told of them, and who judges them."""

    acts: Sequence[Act]
    report: Report
    jury: Jury

    async def all_on(self, stage: Stage, *, must_serve: bool) -> list[Ended]:
        """Play acts until one of them goes wrong; return those that have ended, at least one."""
        done: list[Ended] = []
        if must_serve and (failed := await self._begun(stage)):
            return [failed]
        for act in self.acts:
            self.report.begins(act)
            done.append(await self._ended(act, stage))
            self.report.ended(done[-1])
            if not done[-1].is_clean:
                return done
        await _watched(stage, partial(self._come_to_rest, stage))
        return done

    async def _come_to_rest(self, stage: Stage) -> None:
        """Give the program time for what it still owes; it is named later."""
        with suppress(Stuck):
            await stage.until("what is owed", lambda: not self.jury.is_owed)

    async def _begun(self, stage: Stage) -> Ended | None:
        """Start the program; return what it has broken if it does not serve then.

        Raises Stuck if it is broken in no way that a clause is about.
        """
        self.jury.hear(START)
        try:
            await _watched(stage, stage.serve, self.jury)
        except Stuck as stuck:
            ended = self.jury.end_of_act(str(stuck), stuck.clause)
            if not ended.broken:
                raise
        else:
            ended = self.jury.end_of_act("", "")
        return None if ended.is_clean else ended

    async def _ended(self, act: Act, stage: Stage) -> Ended:
        """Play an act; return how it has ended."""

        async def play() -> None:
            if not stage.program.is_running:
                await stage.serve()
            await act.play(stage)
            await stage.at_rest()

        self.jury.hear(act)
        try:
            await _watched(stage, play, self.jury)
        except (Stuck, FluxError) as error:
            found = _harm(stage) or error
            clause = found.clause if isinstance(found, Stuck) else ""
            return self.jury.end_of_act(str(found), clause)
        return self.jury.end_of_act("", "")


def _harm(stage: Stage) -> Stuck | None:
    """Return what was done to a job that the act did not touch: the act may be stuck by this."""
    try:
        stage.none_is_harmed()
    except Stuck as harm:
        return harm
    return None


async def _watched(
    stage: Stage, play: Callable[[], Awaitable[None]], jury: Jury | None = None
) -> None:
    """Do something while the time of the program is counted.

    It ends when a clause is broken, but the instance has the time to answer to that. Raises
    ProgramNotStarted, Stuck and FluxError.
    """
    raised: list[Stuck | FluxError | ProgramNotStarted] = []

    async def interrupt(cancel: Callable[[], None], jury: Jury) -> None:
        await jury.broken.wait()
        await trio.sleep(LOOK_S)
        cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.watch)
        if jury is not None:
            nursery.start_soon(interrupt, nursery.cancel_scope.cancel, jury)
        try:
            await play()
        except (Stuck, FluxError, ProgramNotStarted) as error:
            raised.append(error)
        nursery.cancel_scope.cancel()
    if raised:
        raise raised[0]
