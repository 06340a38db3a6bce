"""Run an exercise: open the instance, play the acts, judge the trace."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.config import Config
from flux_trio.formats import ResourceSet
from flux_trio.instance import MODULES, Instance, Surroundings, open_instance
from flux_trio.judge import Clause, Judgement, Verdict, judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab.exercise import execution, scheduling
from flux_trio.lab.exercise.findings import Findings
from flux_trio.lab.exercise.program import Program
from flux_trio.lab.exercise.stage import Act, Stage, Stuck
from flux_trio.messages import FluxError, topics
from flux_trio.services.module_process import system_clock
from flux_trio.sim import make_machine
from flux_trio.trace import Record, Shown, Source

FORM: Final = "an exercise"

LONG_TEXT: Final = "6.response.4"
"""Recommends short error texts, and is not judged: those of flux-trio are longer."""


@dataclass(frozen=True, slots=True)
class Kit:
    """What is exercised: the module that the instance lacks, and whom the clauses bind.

    `actor` and `rfcs` select the clauses. The program serves once its request `ready` is answered.
    """

    module: str
    ready: str
    actor: str
    rfcs: tuple[int, ...]
    machine: ResourceSet
    is_simulated: bool

    def clauses(self) -> list[Clause]:
        """Return the clauses that bind the program, in the order of the registry."""
        return [
            each
            for each in load_clauses().values()
            if each.actor == self.actor and each.rfc in self.rfcs
        ]


SCHED_KIT: Final = Kit(
    topics.SCHED,
    topics.SCHED_READY,
    "scheduler",
    (20, 27, 28),
    make_machine(scheduling.NNODES, scheduling.CORES),
    is_simulated=True,
)
EXEC_KIT: Final = Kit(
    topics.JOB_EXEC,
    topics.EXEC_HELLO,
    "exec",
    (32,),
    make_machine(execution.NNODES, execution.CORES),
    is_simulated=False,
)

ReportAct = Callable[[Act, str], None]
"""Called after each act with "" or what it was stuck in."""


async def exercise(
    kit: Kit,
    command: Sequence[str],
    acts: Sequence[Act],
    report: ReportAct,
    *,
    limited: Sequence[str] = (),
    limited_acts: Sequence[Act] = (),
    deadline_s: float = 10.0,
) -> Findings:
    """Drive the program `command` through `acts`, and then `limited` through `limited_acts`.

    A program that has ended, or was stuck, is started again at the next act. Raises
    ProgramNotStarted, and Stuck if it does not serve when it is started for the first time.
    """
    stuck: dict[str, str] = {}
    stand_ins: set[str] = set()
    records: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="flux-trio-exercise-") as directory:
        given = Surroundings(
            inventory=kit.machine,
            userid=os.getuid(),
            epoch=time.time(),
            clock=system_clock(),
            statedir=Path(directory),
            listen=True,
            sinks=(records.append,),
            modules=tuple(name for name in MODULES if name != kit.module),
        )
        config = Config()
        if kit.is_simulated:
            config = msgspec.structs.replace(
                config, exec=msgspec.structs.replace(config.exec, simulate=True)
            )
        async with open_instance(config, given) as instance:
            for words, some in ((command, acts), (limited, limited_acts)):
                if words:
                    found, parties = await _played(instance, kit, words, some, report, deadline_s)
                    stuck |= found
                    stand_ins |= parties
    return Findings(stuck, kit.clauses(), *_judged(records, stand_ins))


async def _played(
    instance: Instance,
    kit: Kit,
    command: Sequence[str],
    acts: Sequence[Act],
    report: ReportAct,
    deadline_s: float,
) -> tuple[dict[str, str], set[str]]:
    """Play the acts with one program.

    Returns what they were stuck in, by title, and the parties that stood in for a service.
    """
    stuck: dict[str, str] = {}
    program = Program(command, instance.uri, instance.owner_token)
    async with instance.connect("exercise") as handle:
        stage = Stage(handle, program, kit.ready, instance.connect, deadline_s)
        instance.trace.add_sink(stage.observe)
        try:
            await stage.serve()
            for act in acts:
                found = await _stuck_in(act, stage)
                report(act, found)
                if found:
                    stuck[act.title] = found
        finally:
            await program.end()
            instance.trace.remove_sink(stage.observe)
    return stuck, stage.stand_ins


async def _stuck_in(act: Act, stage: Stage) -> str:
    """Play an act; return what was waited for in vain, "" if nothing was."""
    try:
        if not stage.program.is_running:
            await stage.serve()
        await act.play(stage)
        await stage.at_rest()
    except (Stuck, FluxError) as error:
        await stage.cancel_all()
        await stage.program.kill()  # scheduling may be suspended; the next act starts it anew
        return str(error)
    return ""


def _judged(records: list[Record], stand_ins: set[str]) -> tuple[Judgement, dict[int, Record]]:
    """Judge the trace; return the judgement, and the records that it shows by number.

    What the parties `stand_ins` break is left out: a service may not refuse what they refuse.
    """
    clauses = load_clauses()
    rules = [rule for rule in ALL_RULES if rule.clause in clauses and rule.clause != LONG_TEXT]
    judgement = judge_trace(Source(FORM, Shown(), iter(records)), rules, clauses, at_rest=True)
    violations = [each for each in judgement.violations if each.party not in stand_ins]
    judgement = judgement.narrowed(violations, Verdict.KEPT)
    wanted = judgement.wanted()
    return judgement, {each.n: each for each in records if each.n in wanted}
