"""Faults of the disk, and of the instance as a whole."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Literal, Self, get_args

from flux_trio.lab.catalogue.aim import Aim, any_moment, back_s, half_of_them, one_of, small_number
from flux_trio.lab.catalogue.base import Holds, Strike, fault
from flux_trio.lab.catalogue.places import BusySeconds, Count, Moment, Seconds
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import Errno

Stored = Literal["eventlog", "jobspec", "R"]
"""Which value of a stored job is damaged."""


@fault
class SlowDisk(Strike, frozen=True):
    """For `seconds` each transaction of the kvs takes `takes` seconds: commits are delayed."""

    when: Moment
    takes: Seconds = 0.5
    seconds: Seconds = 5.0

    draws = (any_moment, one_of(0.1, 1.0))

    def strike(self, world: CoresWorld) -> None:
        world.disk.delay_s = self.takes
        world.later(self.seconds, self._end, world)

    def _end(self, world: CoresWorld) -> None:
        world.disk.delay_s = 0.0


@fault
class DiskFull(Strike, frozen=True):
    """For `seconds` no commit can be stored, since there is no space left (ENOSPC)."""

    when: Moment
    seconds: BusySeconds = 3.0

    draws = (any_moment, one_of(0.5, 5.0))

    def strike(self, world: CoresWorld) -> None:
        world.disk.errnum = Errno.ENOSPC
        world.later(self.seconds, self._end, world)

    def _end(self, world: CoresWorld) -> None:
        world.disk.errnum = 0


@fault
class DiskFails(Strike, frozen=True):
    """Commits are refused (EIO); after `back` seconds the instance is restarted on a good disk."""

    when: Moment
    back: BusySeconds = 1.0

    draws = (any_moment, one_of(0.0, 2.0))

    def strike(self, world: CoresWorld) -> None:
        world.disk.errnum = Errno.EIO
        world.later(self.back, self._end, world)

    def _end(self, world: CoresWorld) -> None:
        world.disk.errnum = 0
        parties.end_instance(world, 0.0)


@fault
class TornCommit(Strike, frozen=True):
    """The instance is killed during the next transaction of the kvs after `when`.

    The transaction is lost, or if it `is_stored` only its answer. The instance is started again
    after `back` seconds.
    """

    when: Moment
    is_stored: bool = False
    back: Seconds = 0.0

    draws = (any_moment, half_of_them, back_s)

    def strike(self, world: CoresWorld) -> None:
        world.disk.is_stored = self.is_stored
        world.disk.torn = lambda: world.at_once(lambda: parties.kill_instance(world, self.back))


@fault
class DamagedValue(Strike, frozen=True):
    """The value `what` of the `nth` stored job is damaged: reads of it fail from now on (EBADMSG).

    What the instance knows of the job does not change; after a restart it is set aside.
    """

    holds: ClassVar[Holds] = Holds.NO_ERROR

    when: Moment
    what: Stored = "eventlog"
    nth: Count = 1

    @classmethod
    def drawn(cls, draw: Random, aim: Aim) -> Self:
        what: Stored = draw.choice(get_args(Stored))
        return cls(aim.moment(), what, small_number(draw, aim))

    def strike(self, world: CoresWorld) -> None:
        world.disk.damage(self.what, self.nth)


@fault
class KillInstance(Strike, frozen=True):
    """The whole instance is killed; it is started again from its store after `back` seconds."""

    when: Moment
    back: Seconds = 0.0

    draws = (any_moment, back_s)

    def strike(self, world: CoresWorld) -> None:
        parties.kill_instance(world, self.back)


@fault
class RestartInstance(Strike, frozen=True):
    """The instance ends in order; it is started again from its store after `back` seconds."""

    when: Moment
    back: Seconds = 0.0

    draws = (any_moment, back_s)

    def strike(self, world: CoresWorld) -> None:
        parties.end_instance(world, self.back)
