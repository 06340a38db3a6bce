"""An exercise without processes: the program is a task, in an instance with a virtual clock.

A mistake is a text that takes the place of another one in the source of the program.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from flux_trio.broker import ServiceExit
from flux_trio.instance import Instance, Surroundings
from flux_trio.lab.exercise import Act, Findings, Kit, Part, Report, exercise

DEADLINE_S = 10.0
EPOCH = 1_800_000_000.0


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

    def is_idle(self) -> bool:
        return True

    async def start(self) -> None:
        self.returncode, self._ended, self._scope = None, trio.Event(), trio.CancelScope()
        self._nursery.start_soon(self._run, self._scope, self._ended)

    async def _run(self, scope: trio.CancelScope, ended: trio.Event) -> None:
        with scope:
            async with self._instance.connect("program") as handle:
                try:
                    await self._module.serve(handle)
                except* (self._module.Leave, ServiceExit):
                    self.returncode = 1
        self._scope = None
        ended.set()

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


def exercised(kit: Kit, module: Any, acts: Sequence[Act]) -> Findings:
    """Drive the program of a module through acts, in virtual time."""

    def surround(kit: Kit, _directory: Path) -> Surroundings:
        return Surroundings(kit.machine, 0, trio.current_time())

    async def run() -> Findings:
        async with trio.open_nursery() as nursery:
            part = Part(partial(InProcess, module, nursery), acts)
            found = await exercise(kit, [part], Report(), surround=surround, deadline_s=DEADLINE_S)
            nursery.cancel_scope.cancel()
            return found
        raise AssertionError

    clock = MockClock(autojump_threshold=0.0)
    clock.jump(EPOCH)
    return trio.run(run, clock=clock)
