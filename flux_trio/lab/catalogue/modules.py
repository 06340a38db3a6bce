"""Faults of modules: they end, are away, hang or are slow."""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec

from flux_trio.formats import FormatError
from flux_trio.lab.catalogue.aim import (
    any_module,
    any_moment,
    back_s,
    module_but_kvs,
    number,
    one_of,
    some_modules,
)
from flux_trio.lab.catalogue.base import BaseFault, Strike, fault
from flux_trio.lab.catalogue.places import (
    BUSY_S,
    AnyModule,
    BusySeconds,
    Crowded,
    Machine,
    Module,
    Moment,
    Seconds,
)
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import CoresWorld


@fault
class Crash(Strike, frozen=True):
    """The module ends with an error; it is loaded again after `back` seconds.

    A crash of the kvs ends the instance, which is started again after `back` seconds.
    """

    module: AnyModule
    when: Moment
    back: Seconds = 0.0

    draws = (any_module, any_moment, back_s)

    def strike(self, world: CoresWorld) -> None:
        world.crash(self.module)
        if world.is_essential(self.module):
            parties.end_instance(world, self.back)
        else:
            world.load_later(self.module, self.back)


@fault
class Return(Strike, frozen=True):
    """The module returns although nobody asked it to; it is loaded again after `back` seconds."""

    module: Module
    when: Moment
    back: Seconds = 0.0

    draws = (module_but_kvs, any_moment, back_s)

    def strike(self, world: CoresWorld) -> None:
        world.let_return(self.module)
        world.load_later(self.module, self.back)


@fault
class Unload(Strike, frozen=True):
    """The module is removed in order; it is loaded again after `back` seconds.

    The kvs is not removed: the others depend on it, so the request is refused.
    """

    module: AnyModule
    when: Moment
    back: Seconds = 0.0

    draws = (any_module, any_moment, back_s)

    def strike(self, world: CoresWorld) -> None:
        if world.unload(self.module):
            world.load_later(self.module, self.back)


@fault
class Reload(Strike, frozen=True):
    """The module is removed in order and loaded again before anybody else has a turn."""

    module: Module
    when: Moment

    draws = (module_but_kvs, any_moment)

    def strike(self, world: CoresWorld) -> None:
        if world.unload(self.module):
            world.load(self.module)


@fault
class CrashTogether(Strike, frozen=True):
    """Several modules end with an error at one moment; they are loaded again after `back`."""

    modules: Annotated[tuple[Module, ...], msgspec.Meta(min_length=1)]
    when: Moment
    back: Seconds = 0.0

    draws = (some_modules, any_moment, back_s)

    def simpler_kinds(self) -> list[BaseFault]:
        return [Crash(each, self.when, self.back) for each in self.modules]

    def strike(self, world: CoresWorld) -> None:
        for module in self.modules:
            world.crash(module)
        for module in self.modules:
            world.load_later(module, self.back)


@fault
class CrashLoop(Strike, frozen=True):
    """The module ends with an error, and `times` more after each load, `every` seconds apart."""

    module: Module
    when: Moment
    times: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    every: BusySeconds = 0.5

    draws = (module_but_kvs, any_moment, number(1, 4), one_of(0.0, 0.5))

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        if self.times * self.every > BUSY_S:
            expected = f"at most {BUSY_S:.0f} seconds for {self.times} times together"
            raise FormatError(expected, self.times * self.every, "every")

    def strike(self, world: CoresWorld) -> None:
        world.crash(self.module)
        world.load_later(self.module, self.every)
        for nth in range(1, self.times + 1):
            world.later(self.every * nth, lambda: world.crash(self.module))
            # also if the instance has begun anew before that crash: nobody else loads the module
            world.later(self.every * (nth + 1), lambda: world.load(self.module))


@fault
class Linger(Strike, frozen=True):
    """The module hangs for `seconds`: it takes nothing in, and none of its timers fires."""

    module: AnyModule
    when: Moment
    seconds: Seconds = 1.0

    draws = (any_module, any_moment, one_of(0.5, 2.0, 10.0))

    def strike(self, world: CoresWorld) -> None:
        world.linger(self.module, self.seconds)


@fault
class Slow(Strike, frozen=True):
    """For `seconds` the module takes one message a turn, and waits `pause` seconds after each."""

    module: AnyModule
    when: Moment
    pause: Seconds = 0.1
    seconds: Seconds = 5.0

    draws = (any_module, any_moment)

    def strike(self, world: CoresWorld) -> None:
        world.slow_down(self.module, self.pause, self.seconds)


@fault
class FullInbox(Strike, frozen=True):
    """For `seconds` requests to the module are refused with EAGAIN, as when too many wait.

    The others send requests to scheduler and execution service only as fast as these take them.
    """

    module: Crowded
    when: Moment
    seconds: BusySeconds = 1.0

    draws = (one_of(*get_args(Crowded)), any_moment, one_of(0.5, 3.0))

    def strike(self, world: CoresWorld) -> None:
        world.fill_inbox(self.module, self.seconds)
