"""The modules of a world of the whole stack: real services under the real supervisor.

The handle of each module asks the world which messages have reached the module, how long it hangs,
what it sends in place of its messages, and whether it is still there to act.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import trio

from flux_trio.broker import (
    Clock,
    LocalHandle,
    LogBook,
    ModuleKilled,
    Router,
    ServiceExit,
    Supervisor,
)
from flux_trio.broker.handle import C
from flux_trio.broker.supervisor import ModuleSpec
from flux_trio.cores.turns import Core
from flux_trio.jobtap.host import REMOVED
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.disk import KvsOnDisk
from flux_trio.lab.world.station import Station
from flux_trio.messages import ROLE_OWNER, Event, Message, Request, Response
from flux_trio.process.groups import leaves
from flux_trio.services.at_once import KVS_MODULE
from flux_trio.trace import KILLED, Kind


class WorldOfServices(CoresWorld):
    """A world of the whole stack: the part that its modules use."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.is_falling = False  # whether the instance ends: nothing is loaded any more
        self.going_on = trio.Event()  # set when a turn that was interrupted goes on
        super().__init__(*given, **more)

    def closed(self, station: Station) -> None:
        """Note that the handle of a module is closed: the module has ended."""
        if self.stations.get(station.name) is station:
            del self.stations[station.name]
            self.order.forget(station)

    async def back(self, name: str) -> None:
        """Wait until a module that a fault lets hang may go on."""
        at = self.order.hangs_until(name)
        if at > self.passed:
            await trio.sleep_until(at)
            await self.back(name)  # it may hang for longer by now


class ModuleStation(Station):
    """A module of the stack: messages wait here until the world lets them reach its service."""

    def __init__(self, handle: ModuleHandle, world: WorldOfServices, nbefore: int) -> None:
        peer = handle.peer
        super().__init__(
            handle.name, _NOT_YET, peer.userid, peer.rolemask, world.sender_of, nbefore
        )
        self.handle = handle
        self.peer = peer
        self.nin_handle = peer.waiting
        peer.deliver, peer.waiting = self._deliver, self._waiting

    def _waiting(self) -> int:
        return super()._waiting() + self.nin_handle()

    @property
    def is_calm(self) -> bool:
        """Whether the service has acted on all messages, and waits for no plugin."""
        return (
            self.core is not _NOT_YET
            and not self.handle.is_doomed
            and not self.nin_handle()
            and not getattr(self.core, "is_asking", False)
        )


class _NotYet:
    """The core of a module that has not begun, or has none."""

    def start(self, _now: float) -> list[Any]:
        return []

    def turn(self, _now: float, _inputs: Sequence[Any]) -> list[Any]:
        return []

    def dump(self) -> dict[str, dict[str, Any]]:
        """Return no state."""
        return {}


_NOT_YET: Core[Any, Any, Any] = _NotYet()


class ModuleHandle(LocalHandle):
    """The handle by which a service of the stack sends and receives.

    `is_doomed` is set when the module has ended for the others, although its task has not yet: then
    it sends and takes nothing. The trace has from it only the plugins that fail in `removed`, which
    is called then.
    """

    def __init__(
        self,
        world: WorldOfServices,
        name: str,
        router: Router,
        clock: Clock,
        log: LogBook,
        userid: int,
        nbefore: int,
    ) -> None:
        super().__init__(name, router, clock, log, userid, ROLE_OWNER, nbefore)
        self.is_doomed = False
        self.taken: list[Any] = []  # what it has received and not acted on
        self._world = world
        self.station = ModuleStation(self, world, nbefore)
        world.stations[self.name] = self.station

    def adopt(self, core: C) -> C:
        if self.name == KVS_MODULE:
            core = KvsOnDisk(self._world.disk, self._world.config.edition_value)  # type: ignore[assignment]
        self.station.core = core  # type: ignore[assignment]
        return core

    def subscribe(self, pattern: str) -> None:
        self.station.subscribe(pattern)

    def pass_in(self, ref: int, message: Message) -> None:
        """Let a message that waited at the station reach the service."""
        self._take_in(ref, message)

    async def receive(self) -> list[Any]:
        return await self._receive_until(math.inf)

    async def receive_for(self, seconds: float) -> list[Any]:
        return await self._receive_until(trio.current_time() + seconds)

    async def _receive_until(self, deadline: float) -> list[Any]:
        if deadline == math.inf:
            batch = await self._inbox.get_batch()
        else:
            batch = await self._inbox.get_batch_until(deadline)
        await self._hang(batch)
        self.taken = self._unwrap(batch)
        self._world.strike()
        if self._world.is_stopping:
            await self._world.going_on.wait()
        if self.is_doomed:
            await trio.sleep_forever()  # until its end, which has begun, reaches this task
        taken, self.taken = self.taken, []
        self.station.stepped = 0.0  # the turn that follows begins with a look at the clock
        return taken

    async def _hang(self, batch: list[tuple[int, Any]]) -> None:
        """Wait as long as the module hangs."""
        try:
            await self._world.back(self.name)
        except trio.Cancelled:
            self._inbox.put_many(batch)
            raise

    def send(self, message: Request | Response | Event) -> None:
        if self.is_doomed:
            return
        in_place_of = self._world.in_place_of
        sent = None if in_place_of is None else in_place_of(self.name, message)
        for each in (message,) if sent is None else sent:
            super().send(each)
        self._world.strike()

    def log(self, level: int, text: str) -> None:
        if not self.is_doomed:
            super().log(level, text)

    def note(self, kind: str, data: dict[str, Any]) -> None:
        if not self.is_doomed:
            super().note(kind, data)

    def note_all(self, notes: Any) -> None:
        if self.is_doomed:
            notes = [each for each in notes if each[0] == Kind.HOOK and each[1]["hook"] == REMOVED]
        super().note_all(notes)

    def close(self, reason: str = "") -> None:
        for each in self.station.undelivered():
            self._inbox.put(each)
        self._world.closed(self.station)
        super().close(reason)


class WorldSupervisor(Supervisor):
    """A supervisor that lets faults end modules at once, and keeps what services raise."""

    def __init__(self, world: WorldOfServices, *given: Any) -> None:
        super().__init__(*given)
        self._world = world
        self._let_return: set[str] = set()  # modules that return since a fault wants it

    def make_handle(self, name: str, nbefore: int) -> LocalHandle:
        return ModuleHandle(
            self._world, name, self._router, self._clock, self._log, self._userid, nbefore
        )

    async def load(
        self, name: str, arguments: Sequence[str] = (), *, as_process: bool = False
    ) -> None:
        spec = self.specs.get(name)
        if name == "resource" and spec is not None:  # simulated nodes are there in an instance
            main = functools.partial(spec.main, missing=self._world.missing)
            self.specs[name] = msgspec.structs.replace(spec, main=main)
        await super().load(name, arguments, as_process=as_process)

    async def load_again(self, name: str) -> None:
        """Load a module; wait before for the end of one that is ending. Do nothing if it runs."""
        loaded = self._loaded.get(name)
        if loaded is not None:
            handle = loaded.handle
            if not (isinstance(handle, ModuleHandle) and handle.is_doomed):
                return
            await loaded.gone.wait()
        if name not in self._loaded:
            await self.load(name)

    def is_there(self, name: str) -> bool:
        """Whether a module is loaded and not about to end."""
        loaded = self._loaded.get(name)
        return loaded is not None and not getattr(loaded.handle, "is_doomed", False)

    def end(self, name: str, killed: str = "", *, returns: bool = False) -> bool:
        """End a module, and return whether it was there.

        It crashes if `killed` says why, it returns by itself if `returns`, or else it is removed.
        Its task ends when Trio runs again.
        """
        if not self.is_there(name):
            return False
        loaded = self._loaded[name]
        if returns:
            self._let_return.add(name)
        else:
            loaded.killed, loaded.removing = killed, not killed
        handle = loaded.handle
        assert isinstance(handle, ModuleHandle)
        handle.is_doomed = True
        loaded.scope.cancel()
        return True

    def reason(self, spec: ModuleSpec, error: Exception | None) -> str:
        reason = super().reason(spec, error)
        if error is None and spec.name in self._let_return:
            return f"{reason}, {KILLED}"
        return reason

    def _end(self, spec: ModuleSpec, loaded: Any, error: Exception | None) -> None:
        if error is not None and not loaded.killed:
            self._world.errors += [
                f"{spec.name} raised {type(each).__name__}: {each}"
                for each in leaves(error)
                if not isinstance(each, ServiceExit | ModuleKilled)
            ]
        if spec.essential:
            self._world.is_falling = True
        try:
            super()._end(spec, loaded, error)
        finally:
            self._let_return.discard(spec.name)
