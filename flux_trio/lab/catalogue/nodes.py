"""Faults of nodes. `ranks` are their ranks."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import msgspec

from flux_trio.lab.catalogue.aim import any_moment, one_of, some_ranks
from flux_trio.lab.catalogue.base import Strike, fault
from flux_trio.lab.catalogue.places import Machine, Moment, Ranks, Seconds, check_ranks
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import topics


class OfNodes(Strike, frozen=True):
    """A fault that strikes the nodes `ranks`."""

    @property
    @abstractmethod
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the nodes."""

    def check(self, machine: Machine) -> None:
        check_ranks(self.ranks, machine)

    def on_machine(self, machine: Machine) -> Self:
        ranks = dict.fromkeys(min(rank, machine.nnodes - 1) for rank in self.ranks)
        return msgspec.structs.replace(self, ranks=tuple(ranks))

    def unfit_ranks(self, machine: Machine) -> tuple[int, ...]:  # noqa: ARG002 - the interface
        return self.ranks


@fault
class NodesDown(OfNodes, frozen=True):
    """The nodes fail; they are up again after `back` seconds."""

    ranks: Ranks
    when: Moment
    back: Seconds = 5.0

    draws = (some_ranks, any_moment, one_of(0.5, 5.0, 60.0))

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_DOWN, self.ranks)
        world.later(self.back, parties.ask_for_nodes, world, topics.RESOURCE_UP, self.ranks)


@fault
class NodesUp(OfNodes, frozen=True):
    """The nodes are down from the start of the world, and come up at `when`."""

    until_then: ClassVar[str] = "the nodes are down until everything is put right"

    ranks: Ranks
    when: Moment

    draws = (some_ranks, any_moment)

    @property
    def down_at_start(self) -> tuple[int, ...]:
        return self.ranks

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_UP, self.ranks)


@fault
class Drain(OfNodes, frozen=True):
    """The nodes are drained: no new job starts there. They are undrained after `back` seconds."""

    ranks: Ranks
    when: Moment
    back: Seconds = 5.0

    draws = (some_ranks, any_moment, one_of(0.5, 5.0))

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_DRAIN, self.ranks)
        world.later(self.back, parties.ask_for_nodes, world, topics.RESOURCE_UNDRAIN, self.ranks)


@fault
class Shrink(OfNodes, frozen=True):
    """The nodes are excluded while jobs may run there; they come back after `back` seconds.

    The resource service shrinks the scheduler's resources, which raises a fatal exception on the
    jobs there, and grows them again (RFC 28).
    """

    ranks: Ranks
    when: Moment
    back: Seconds = 5.0

    draws = (some_ranks, any_moment, one_of(0.5, 5.0))

    @property
    def may_exclude(self) -> bool:
        return True

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_EXCLUDE, self.ranks)
        world.later(self.back, parties.ask_for_nodes, world, topics.RESOURCE_EXCLUDE, ())


@fault
class Exclude(OfNodes, frozen=True):
    """The nodes are excluded from the start of the world, and included at `when`: the resources
    grow.
    """

    until_then: ClassVar[str] = "the nodes are excluded until everything is put right"

    ranks: Ranks
    when: Moment

    draws = (some_ranks, any_moment)

    @property
    def excluded_at_start(self) -> tuple[int, ...]:
        return self.ranks

    @property
    def may_exclude(self) -> bool:
        return True

    def strike(self, world: CoresWorld) -> None:
        parties.ask_for_nodes(world, topics.RESOURCE_EXCLUDE, ())
