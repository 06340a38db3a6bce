"""Faults of modules: they end, are away, hang or are slow."""

from __future__ import annotations

from typing import Annotated

import msgspec

from flux_trio.lab.catalogue.base import (
    AnyModule,
    BusySeconds,
    Crowded,
    Module,
    Moment,
    Seconds,
    Strike,
)
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import CoresWorld


class Crash(Strike, frozen=True):
    """The module ends with an error; it is loaded again after `back` seconds.

    A crash of the kvs ends the instance, which is started again after `back` seconds.
    """

    module: AnyModule
    when: Moment
    back: Seconds = 0.0

    def strike(self, world: CoresWorld) -> None:
        world.crash(self.module)
        if world.is_essential(self.module):
            parties.end_instance(world, self.back)
        else:
            world.load_later(self.module, self.back)


class Return(Strike, frozen=True):
    """The module returns although nobody asked it to; it is loaded again after `back` seconds."""

    module: Module
    when: Moment
    back: Seconds = 0.0

    def strike(self, world: CoresWorld) -> None:
        world.let_return(self.module)
        world.load_later(self.module, self.back)


class Unload(Strike, frozen=True):
    """The module is removed in order; it is loaded again after `back` seconds.

    The kvs is not removed: the others depend on it, so the request is refused.
    """

    module: AnyModule
    when: Moment
    back: Seconds = 0.0

    def strike(self, world: CoresWorld) -> None:
        if world.unload(self.module):
            world.load_later(self.module, self.back)


class Reload(Strike, frozen=True):
    """The module is removed in order and loaded again before anybody else has a turn."""

    module: Module
    when: Moment

    def strike(self, world: CoresWorld) -> None:
        if world.unload(self.module):
            world.load(self.module)


class CrashTogether(Strike, frozen=True):
    """Several modules end with an error at one moment; they are loaded again after `back`."""

    modules: Annotated[tuple[Module, ...], msgspec.Meta(min_length=1)]
    when: Moment
    back: Seconds = 0.0

    def strike(self, world: CoresWorld) -> None:
        for module in self.modules:
            world.crash(module)
        for module in self.modules:
            world.load_later(module, self.back)


class CrashLoop(Strike, frozen=True):
    """The module ends with an error, and `times` more after each load, `every` seconds apart."""

    module: Module
    when: Moment
    times: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    every: BusySeconds = 0.5

    def strike(self, world: CoresWorld) -> None:
        world.crash(self.module)
        world.load_later(self.module, self.every)
        for nth in range(1, self.times + 1):
            world.later(self.every * nth, lambda: world.crash(self.module))
            # also if the instance has begun anew before that crash: nobody else loads the module
            world.later(self.every * (nth + 1), lambda: world.load(self.module))


class Linger(Strike, frozen=True):
    """The module hangs for `seconds`: it takes nothing in, and none of its timers fires."""

    module: AnyModule
    when: Moment
    seconds: Seconds = 1.0

    def strike(self, world: CoresWorld) -> None:
        world.linger(self.module, self.seconds)


class Slow(Strike, frozen=True):
    """For `seconds` the module takes one message a turn, and waits `pause` seconds after each."""

    module: AnyModule
    when: Moment
    pause: Seconds = 0.1
    seconds: Seconds = 5.0

    def strike(self, world: CoresWorld) -> None:
        world.slow_down(self.module, self.pause, self.seconds)


class FullInbox(Strike, frozen=True):
    """For `seconds` requests to the module are refused with EAGAIN, as when too many wait.

    The others send requests to scheduler and execution service only as fast as these take them.
    """

    module: Crowded
    when: Moment
    seconds: BusySeconds = 1.0

    def strike(self, world: CoresWorld) -> None:
        world.fill_inbox(self.module, self.seconds)
