"""Finds the moments of faults: the nth message that matches, or a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.faults.plan import ClockJump, Crash, Fault, Linger, Plan, Unload, When
from flux_trio.faults.world import CoresWorld
from flux_trio.formats.glob import Glob
from flux_trio.messages import Event, Request, Response
from flux_trio.trace import Record

_TYPES: Final[dict[str, type]] = {"request": Request, "response": Response, "event": Event}


class Moments:
    """Strikes with each fault of a plan at its moment; `struck` are those that have happened."""

    def __init__(self, plan: Plan, world: CoresWorld) -> None:
        self._world = world
        self._at_step: dict[int, list[Fault]] = {}
        self._awaited: list[tuple[Fault, When, Glob]] = []
        self._seen: dict[int, int] = {}  # how many messages have matched, by place in `_awaited`
        self.struck: list[Fault] = []
        for fault in plan.faults:
            if isinstance(fault.when, When):
                self._awaited.append((fault, fault.when, Glob(fault.when.topic)))
            else:
                self._at_step.setdefault(fault.when, []).append(fault)

    def step(self) -> None:
        """Strike with the faults of the step that comes."""
        for fault in self._at_step.pop(self._world.nsteps, ()):
            self._strike(fault)

    def observe(self, record: Record) -> None:
        """Take the next record of the trace; a Sink."""
        if record.message is None:
            return
        for place, (fault, when, topics) in enumerate(self._awaited):
            if record.kind == when.side and isinstance(record.message, _TYPES[when.type]):
                topic = getattr(record.message, "topic", "")
                if topics.matches(topic):
                    self._seen[place] = self._seen.get(place, 0) + 1
                    if self._seen[place] == when.nth:
                        self._world.at_once(self._striking(fault))

    def _striking(self, fault: Fault) -> Callable[[], None]:
        return lambda: self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        world = self._world
        self.struck.append(fault)
        match fault:
            case Crash(module=module, back=back):
                world.crash(module)
                world.later(back, lambda: world.load(module))
            case Unload(module=module, back=back):
                world.unload(module)
                world.later(back, lambda: world.load(module))
            case Linger(module=module, seconds=seconds):
                world.linger(module, seconds)
            case ClockJump(by=by):
                world.set_clock(by)
