"""Our scheduler for a live flux-core: the service of an instance, in the current edition.

A `SchedBridge` stands between the service and the broker. What both need to know of each other
beyond RFC 27 and 28 is the policy of each queue, which is the same for all of them here, and who
holds the names `sched` and `feasibility`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

from flux_trio.attach.bridge import Passed, Sent
from flux_trio.attach.bridged import BridgedHandle
from flux_trio.attach.handle import FluxHandle, Modules
from flux_trio.attach.sched_bridge import SchedBridge
from flux_trio.config import Config, QueueTable
from flux_trio.editions import CURRENT
from flux_trio.messages import Errno, FluxError, Response, topics
from flux_trio.services import sched

CONNECTOR: Final = "connector-local"  # it holds the names of clients
SERVICES: Final = (topics.SCHED, topics.FEASIBILITY)
SEEK_MANAGER_S: Final = 0.5
"""Seconds between questions for a job manager, while there is none."""


class Queue(msgspec.Struct):
    """The part of a queue's configuration that the scheduler reads."""

    parent: str | None = None


class Queues(msgspec.Struct):
    """The part of the answer to config.get that the scheduler reads."""

    queues: dict[str, Queue] = {}


class SchedHandle(BridgedHandle):
    """Its messages go over a `SchedBridge`; `on_ready` is called as `run` says."""

    def __init__(self, flux: FluxHandle, on_ready: Callable[[int], None]) -> None:
        self.bridge = SchedBridge()
        super().__init__(flux, self.bridge)
        self._on_ready = on_ready
        self._has_said_ready = False  # and the core has not noted yet who holds resources

    def subscribe(self, pattern: str) -> None:
        """Do nothing: the bridge makes the only event that the service subscribes to."""

    def note(self, _kind: str, data: dict[str, Any]) -> None:
        """Take the first note after sched-ready, on the jobs that hold resources."""
        if self._has_said_ready:
            self._has_said_ready = False
            self._on_ready(len(data["allocated"]))

    def carry_out(self, sent: Sent) -> None:
        self._has_said_ready |= any(map(_says_ready, sent.to_core))
        super().carry_out(sent)

    async def seek_manager(self) -> None:
        """Ask for a job manager at times, while there is none."""
        while True:
            await trio.sleep(SEEK_MANAGER_S)
            self.carry_out(self.bridge.seek_manager())


def _says_ready(message: Passed) -> bool:
    if not isinstance(message, Response) or message.topic != topics.SCHED_READY:
        return False
    return message.errnum == 0


async def run(
    flux: FluxHandle,
    policy: str,
    on_ready: Callable[[int], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Schedule the jobs of flux-core by `policy` until cancelled.

    `on_ready` is called with the number of jobs that hold resources when requests may come. Raises
    FluxError if another scheduler is there, or the broker gives a wrong answer; ServiceExit where
    RFC 27 or 28 tell a scheduler to end.
    """
    await _refuse_second(flux)
    config = await _config(flux)
    handle = SchedHandle(flux, on_ready)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handle.carry)
        nursery.start_soon(handle.seek_manager)
        await sched.run(handle, config, policy=policy, edition=CURRENT, task_status=task_status)


async def _refuse_second(flux: FluxHandle) -> None:
    """Raise FluxError(EEXIST) with the way out if a module is the scheduler."""
    modules = await flux.ask(topics.MODULE_LIST, Modules, {})
    for module in modules.mods:
        for service in SERVICES:
            if service not in (module.name, *module.services) or module.name == flux.name:
                continue
            if module.name == CONNECTOR:
                text = f"another program at this broker serves {service}; end it first"
                raise FluxError(Errno.EEXIST, text)
            way_out = f"unload it first: flux module remove {module.name}"
            raise FluxError(Errno.EEXIST, f"the module {module.name} serves {service}; {way_out}")


async def _config(flux: FluxHandle) -> Config:
    """Return a configuration with the queues of flux-core: each has an order of its own."""
    known = await flux.ask(topics.CONFIG_GET, Queues, {})
    queues = {name: QueueTable(parent=queue.parent) for name, queue in known.queues.items()}
    return Config(queues=queues)
