"""An exercise names the mistakes that are planted in a program; no other process takes part."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import Handle
from flux_trio.client import URI_VARIABLE
from flux_trio.config import Config
from flux_trio.editions import CLASSIC, CURRENT, Edition
from flux_trio.instance import Instance, Surroundings
from flux_trio.lab.exercise import (
    EXEC_ACTS,
    EXEC_KIT,
    MANAGER_ACTS,
    MANAGER_KIT,
    SCHED_ACTS,
    SCHED_KIT,
    Ability,
    Act,
    Driven,
    Findings,
    Kit,
    Order,
    Part,
    Report,
    exercise,
    sched_kit,
)
from flux_trio.services import sched
from tests.lab.planted import Row, rows
from tests.lab.principles import OfManager, Principles

DEADLINE_S = 10.0
EPOCH = 1_800_000_000.0
STORES = '        await self.insist(topics.KVS_COMMIT, {"ops": [put]})  # before the answer\n'


class InProcess:
    """A program that is a task with a handle: `module.serve(handle)`."""

    def __init__(self, module: Any, nursery: trio.Nursery, instance: Instance) -> None:
        self._module = module
        self._nursery = nursery
        self._instance = instance
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()
        self.returncode: int | None = None

    @property
    def is_running(self) -> bool:
        return self._scope is not None

    def pace(self) -> float:
        return 1.0

    async def start(self) -> None:
        self.returncode, self._ended, self._scope = None, trio.Event(), trio.CancelScope()
        self._nursery.start_soon(self._run, self._scope, self._ended)

    async def _run(self, scope: trio.CancelScope, ended: trio.Event) -> None:
        with scope:
            async with self._connected(self._instance) as handle:
                try:
                    await self._module.serve(handle)
                except* Exception:  # noqa: BLE001 - it ends, as a process does
                    self.returncode = 1
        self._scope = None
        ended.set()

    def _connected(self, instance: Instance) -> AbstractAsyncContextManager[Handle]:
        return instance.connect("program")

    async def wait(self) -> None:
        if self._scope is not None:
            await self._ended.wait()

    async def kill(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._ended.wait()
        self.returncode = None

    end = kill


def changed(path: Path, right: str, wrong: str) -> types.ModuleType:
    """The module of a file in which `wrong` stands for `right`, which is in it once."""
    text = path.read_text()
    assert text.count(right) == 1 or right == wrong == "", (path.name, right, text.count(right))
    module = types.ModuleType("exercised")
    module.__dict__["__name__"] = "exercised"
    sys.modules["exercised"] = module
    exec(compile(text.replace(right, wrong) if right else text, path, "exec"), module.__dict__)
    return module


def exercised(
    kit: Kit,
    module: Any,
    acts: Sequence[Act],
    report: Report | None = None,
    *,
    deadline_s: float = DEADLINE_S,
    edition: Edition = CLASSIC,
    program: Callable[[Any, trio.Nursery, Instance], Driven] = InProcess,
) -> Findings:
    """Drive the program of a module through acts, in virtual time."""
    report = report or Report()

    def surround(kit: Kit, _directory: Path) -> Surroundings:
        return Surroundings(kit.machine, 0, trio.current_time())

    async def run() -> Findings:
        async with trio.open_nursery() as nursery:
            part = Part(partial(program, module, nursery), acts)
            found = await exercise(
                kit, [part], report, surround=surround, deadline_s=deadline_s, edition=edition
            )
            nursery.cancel_scope.cancel()
            return found
        raise AssertionError

    clock = MockClock(autojump_threshold=0.0)
    clock.jump(EPOCH)
    return trio.run(run, clock=clock)


_SLEEP: Final = re.compile(r"(?:exec )?sleep ([\d.]+)")


class Pretended:
    """For `open_process` in virtual time: the shell is real, and stops where it would sleep."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: str | None
    ) -> None:
        script = command[2] if command[:2] == ["sh", "-c"] else ""
        self._nap_s = next((float(found[1]) for found in _SLEEP.finditer(script)), 0.0)
        stopping = _SLEEP.sub("kill -STOP $$", script)
        words = ["sh", "-c", stopping, *command[3:]] if script else list(command)
        self._process = subprocess.Popen(
            words, env=dict(environment), cwd=directory, stdin=subprocess.DEVNULL
        )
        self._signaled = trio.Event()
        self._signum = signal.SIGCONT

    async def wait(self) -> int:
        """Wait until it has ended, while virtual time passes; return the code of `Popen`."""
        await trio.lowlevel.checkpoint()
        while self._process.returncode is None and self._is_stopped():
            with trio.move_on_after(self._nap_s):
                await self._signaled.wait()
                self._signaled = trio.Event()
            os.kill(self._process.pid, self._signum)
            os.kill(self._process.pid, signal.SIGCONT)
        return self._process.wait()

    def _is_stopped(self) -> bool:
        """Wait until it sleeps or has ended."""
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        assert found is not None
        return found.si_code == os.CLD_STOPPED

    def terminate(self) -> None:
        self._signum = signal.SIGTERM
        self._signaled.set()

    def kill(self) -> None:
        self._signum = signal.SIGKILL
        self._signaled.set()

    def end(self) -> None:
        """End what has lost its service."""
        self._process.kill()
        self._process.wait()


async def _open(
    started: list[Pretended],
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    stdin: int,
) -> Pretended:
    """Take the place of `trio.lowlevel.open_process`. Raises OSError."""
    del stdin
    await trio.lowlevel.checkpoint()
    started.append(Pretended(command, env, cwd))
    return started[-1]


def pretending(module: Any) -> Any:
    """Let the program of a module pretend; its processes end with it, as one group."""
    serve = module.serve

    async def serve_and_end(handle: Any) -> None:
        started: list[Pretended] = []
        module.open_process = partial(_open, started)
        try:
            with mock.patch.dict(os.environ, {URI_VARIABLE: "ws://exercise"}):
                await serve(handle)
        finally:
            for each in started:
                each.end()

    module.serve = serve_and_end
    return module


@dataclass(frozen=True)
class Planted:
    """A program of the page, how it is exercised, and the mistakes that are planted in it."""

    name: str
    kit: Kit
    acts: Sequence[Act]
    rows: Sequence[Row] = ()
    edition: Edition = CLASSIC

    def played(self, right: str, wrong: str, acts: Sequence[Act]) -> Findings:
        module = changed(SCRIPTS / self.name, right, wrong)
        program = pretending(module) if self.kit is EXEC_KIT else module
        return exercised(self.kit, program, acts, edition=self.edition)


class Ours:
    """Our scheduler, as the module of a program."""

    @staticmethod
    async def serve(handle: Any) -> None:
        await sched.run(handle, Config())


OURS = Ours()
SCRIPTS = Path(__file__).parents[2] / "docs" / "howto" / "any-language"
WITHOUT = frozenset(Ability)
ABLE = [act for act in SCHED_ACTS.chosen(Order.FIFO, frozenset()) if act.needs]
FIFO_ACTS = SCHED_ACTS.chosen(Order.FIFO, WITHOUT)
FIFO = Planted("fifo.py", sched_kit(WITHOUT), FIFO_ACTS, rows("fifo.py"))
EXEC = Planted("exec.py", EXEC_KIT, EXEC_ACTS, rows("exec.py"))
CURRENT_FIFO = Planted("current/fifo.py", sched_kit(WITHOUT), FIFO_ACTS, edition=CURRENT)
CURRENT_EXEC = Planted("current/exec.py", EXEC_KIT, EXEC_ACTS, edition=CURRENT)
ALL = [pytest.param(each, row, id=row.name) for each in (FIFO, EXEC) for row in each.rows]


def program_of(planted: Planted) -> types.ModuleType:
    """The right program."""
    return changed(SCRIPTS / planted.name, "", "")


@cache
def played_right(name: str) -> tuple[Findings, Principles]:
    """What is found of a right program and what it is shown, once for all tests in a process.

    `name` is sched, abilities (our scheduler, which has them all), exec or manager.
    """
    runs: dict[str, tuple[Kit, object, Sequence[Act]]] = {
        "sched": (FIFO.kit, program_of(FIFO), FIFO.acts),
        "abilities": (SCHED_KIT, OURS, ABLE),
        "exec": (EXEC.kit, pretending(program_of(EXEC)), EXEC.acts),
        "manager": (MANAGER_KIT, changed(SCRIPTS / "manager.py", "", ""), MANAGER_ACTS),
    }
    kit, program, acts = runs[name]
    report = OfManager() if name == "manager" else Principles()
    found = exercised(kit, program, acts, report)
    assert found.is_clean, found.text()
    return found, report


@pytest.mark.parametrize(("planted", "name"), [(FIFO, "sched"), (EXEC, "exec")])
def test_right_program_keeps_every_clause_that_acts_are_about(planted: Planted, name: str) -> None:
    found, _ = played_right(name)
    assert_kept(planted, found)


def assert_kept(planted: Planted, found: Findings) -> None:
    """Each clause that an act is about was kept, and none broken."""
    assert found.is_clean, found.text()
    verdicts = {clause.id: found.verdict(clause) for clause in found.clauses}
    played = [act for act in planted.acts if act.where(planted.edition)]
    about = {clause for act in played for clause in act.clauses if clause in verdicts}
    assert {clause: verdicts[clause] for clause in about} == dict.fromkeys(about, "kept")


@pytest.mark.parametrize(
    ("planted", "right", "wrong"),
    [
        pytest.param(
            FIFO,
            STORES,
            STORES + "        await trio.sleep(1)\n",
            id="slow",
            marks=pytest.mark.gate,
        ),
        pytest.param(CURRENT_FIFO, "", "", id="current"),
        pytest.param(CURRENT_EXEC, "", "", id="current-exec", marks=pytest.mark.gate),
    ],
)
def test_right_program_that_is_slow_or_of_the_other_edition_keeps_them_too(
    planted: Planted, right: str, wrong: str
) -> None:
    assert_kept(planted, planted.played(right, wrong, planted.acts))


def test_program_on_a_slow_machine_may_end_a_job_at_its_limit_before_it_runs() -> None:
    """The time of a job counts from its resources; here each launch takes longer than a limit."""
    limits = (
        "        async with trio.open_nursery() as limits:\n"
        "            limits.start_soon(self.limit, job)\n"
    )
    launch = "if not job.ending.is_set():\n{0}    await self.launch(job)\n"
    right = " " * 8 + launch.format(" " * 8) + limits
    wrong = limits + " " * 12 + "await trio.sleep(1.6)\n" + " " * 12 + launch.format(" " * 12)
    titles = (
        "the time limits of jobs change while they wait",
        "a job with a time limit has waited for longer than that",
    )
    acts = [act for act in EXEC.acts if act.title in titles]
    assert len(acts) == len(titles)
    found = EXEC.played(right, wrong, acts)
    assert found.is_clean, found.text()


def test_clause_whose_act_was_not_played_is_not_kept() -> None:
    found = FIFO.played("", "", FIFO.acts[:1])
    assert found.is_clean, found.text()
    offline = next(clause for clause in found.clauses if clause.id == "28.offline.3")
    assert found.verdict(offline) == "not exercised"


SEEN_ELSEWHERE: Final = (
    "a node that is taken away denies all that waits",
    "nobody is told of a command that is not there",
    "jobs are ended when the job manager goes",
    "whoever leaves was the job manager",
)
"""Mistakes that do not show in the acts about their clause, but in others."""


@pytest.mark.in_part(12)
@pytest.mark.parametrize(("planted", "row"), ALL)
def test_mistake_is_named(planted: Planted, row: Row) -> None:
    about = [act for act in planted.acts if row.clause in act.clauses]
    acts = planted.acts if row.name in SEEN_ELSEWHERE else about or planted.acts
    found = planted.played(row.right, row.wrong, acts)
    assert row.clause in {each.clause for each in found.judgement.violations}, found.text()


@pytest.mark.parametrize(("planted", "least"), [(FIFO, 50), (EXEC, 20)])
def test_many_of_the_mistakes_are_from_the_rfcs_alone(planted: Planted, least: int) -> None:
    assert sum(row.is_blind for row in planted.rows) >= least


def test_half_of_all_mistakes_are_from_the_rfcs_alone() -> None:
    planted = [*FIFO.rows, *EXEC.rows, *rows("fifo.js")]
    assert sum(row.is_blind for row in planted) * 2 >= len(planted)


def test_order_of_starts_is_not_looked_at_if_the_author_says_so() -> None:
    row = next(row for row in FIFO.rows if row.name == "new priorities are ignored")
    acts = [act for act in SCHED_ACTS if act.title == "priorities of waiting jobs change"]
    found = FIFO.played(row.right, row.wrong, [act for act in acts if Order.ANY in act.orders])
    assert found.is_clean, found.text()


def test_refusal_of_the_instance_is_shown_with_what_it_refuses() -> None:
    row = next(row for row in FIFO.rows if row.name == "what is given stays free")
    found = FIFO.played(row.right, row.wrong, FIFO.acts[1:2])
    text = found.text()
    assert text.index("no-double-allocation broken by") < text.index("\n  log: ")


def fifo_with(right: str, wrong: str, *titles: str) -> Findings:
    """Acts, played by fifo.py with another mistake."""
    return FIFO.played(
        right, wrong, [act for title in titles for act in FIFO.acts if act.title == title]
    )


def test_scheduler_that_answers_twice_is_named() -> None:
    once = "            self.answer(job, SUCCESS)\n"
    found = fifo_with(once, 2 * once, "one job")
    assert not found.is_clean
    assert "27.success.8 broken by " in found.text()
    assert "another SUCCESS after SUCCESS" in found.text()


FREED = '                self.respond(request, {"id": payload["id"]})\n'


def test_scheduler_that_never_frees_is_named_as_the_cause() -> None:
    (what,) = fifo_with(FREED, "", "one job").stuck.values()
    assert re.fullmatch(
        r"event clean of job ƒ\w+: not within 10 s; "
        r"the program has not answered sched\.free of this job",
        what,
    )
    unfreed = '                self.free(payload["id"])\n' + FREED
    found = fifo_with(unfreed, "                pass\n", "three times as many jobs as fit")
    (what,) = found.stuck.values()
    assert "has not answered sched.free of this job" in what


def stays(of: str) -> tuple[str, str]:
    """What is to be changed so that a scheduler stays when it is refused something."""
    leaving = f'            raise Leave(f"{{{of}}}: {{error}}") from None\n'
    return leaving, "            await trio.sleep_forever()\n"


@pytest.mark.parametrize(
    ("title", "of", "topic"),
    [
        ("the program is refused the resources", "topics.RESOURCE_ACQUIRE", "resource.acquire"),
        ("the release of a node is refused", "topic", "resource.release"),
    ],
)
def test_scheduler_that_stays_when_it_is_refused_something_is_named(
    title: str, of: str, topic: str
) -> None:
    found = fifo_with(*stays(of), title)
    assert found.stuck == {title: f"{topic} was refused, and the program runs on for 10 s"}
    assert not found.is_clean


def test_service_is_back_after_a_client_has_stood_in_for_it() -> None:
    title = "the program's ready is refused"
    assert list(fifo_with(*stays("topic"), title, "one job").stuck) == [title]


STUCK = (
    "one job",
    "a small job gets a higher priority than a large one that waits",
    "the program is started while a node is drained",
    "another scheduler has run before",
)


@pytest.mark.parametrize(
    ("right", "clause"),
    [(FREED, "27.free.6"), ("            self.answer(job, SUCCESS)\n", "27.alloc.12")],
)
def test_after_one_stuck_act_nothing_else_is_said(right: str, clause: str) -> None:
    found = fifo_with(right, "            pass\n" if clause != "27.free.6" else "", *STUCK)
    assert {each.clause for each in found.judgement.violations if not each.cause} == {clause}
    assert {each.blamed for each in found.judgement.violations} == {"the program (scheduler)"}
    unclear = [each for each in found.clauses if each.id in ("28.online.3", "27.hello.12")]
    assert [found.verdict(each) for each in unclear] == ["not judged", "not judged"]
    assert all(clause in each.text() for each in found.ended)


def test_deadline_of_later_acts_is_no_shorter_than_what_the_instance_needs() -> None:
    acts = [act for act in FIFO.acts if act.title in STUCK[:2]]
    module = changed(SCRIPTS / FIFO.name, FREED, "")
    found = exercised(FIFO.kit, module, acts, deadline_s=1.5)
    first, second = found.stuck.values()
    assert "not within 1.5 s" in first
    assert "not within 1 s" in second
