"""Faults after which a tool of the operator works on the state file."""

from __future__ import annotations

from flux_trio.lab.catalogue.base import BaseFault, fault
from flux_trio.lab.catalogue.places import Moment, Seconds
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.recovering import Tool


@fault
class Recover(BaseFault, frozen=True):
    """The instance is killed, and `tool` works on its state file before it starts again.

    `repair` is `flux-trio fsck --repair`; `restore` restores a backup into a new directory, in
    which queues are stopped and jobs that had resources are ended: the backup that was made while
    the instance ran if nothing was stored since, else one that is made now; `nothing` starts from
    what was left. The next instance starts after `back` seconds. A store in memory has no file:
    then the instance is only killed.
    """

    when: Moment
    tool: Tool = "repair"
    back: Seconds = 0.0

    @property
    def place(self) -> Moment:
        return self.when

    def strike(self, world: CoresWorld) -> None:
        if world.is_up:
            world.disk.killed(self.tool, world.now)
            parties.kill_instance(world, self.back)
