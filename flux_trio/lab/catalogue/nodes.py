"""Faults of nodes. `ranks` are their ranks."""

from __future__ import annotations

from flux_trio.lab.catalogue.base import Moment, Ranks, Seconds, Strike
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import topics


class NodesDown(Strike, frozen=True):
    """The nodes fail; they are up again after `back` seconds."""

    ranks: Ranks
    when: Moment
    back: Seconds = 5.0

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_DOWN, self.ranks)
        world.later(self.back, parties.ask_for_nodes, world, topics.RESOURCE_UP, self.ranks)


class NodesUp(Strike, frozen=True):
    """The nodes are down from the start of the world, and come up at this moment."""

    ranks: Ranks
    when: Moment

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_UP, self.ranks)


class Drain(Strike, frozen=True):
    """The nodes are drained: no new job starts there. They are undrained after `back` seconds."""

    ranks: Ranks
    when: Moment
    back: Seconds = 5.0

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_DRAIN, self.ranks)
        world.later(self.back, parties.ask_for_nodes, world, topics.RESOURCE_UNDRAIN, self.ranks)


class Shrink(Strike, frozen=True):
    """The nodes are excluded while jobs may run there; they come back after `back` seconds.

    The resource service shrinks the scheduler's resources, which raises a fatal exception on the
    jobs there, and grows them again (RFC 28).
    """

    ranks: Ranks
    when: Moment
    back: Seconds = 5.0

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_EXCLUDE, self.ranks)
        world.later(self.back, parties.ask_for_nodes, world, topics.RESOURCE_EXCLUDE, ())


class Exclude(Strike, frozen=True):
    """The nodes are excluded from the start of the world, and grow the resources at this moment."""

    ranks: Ranks
    when: Moment

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_EXCLUDE, ())
