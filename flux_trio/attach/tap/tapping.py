"""The process of a tap: it stands between the broker and the loader of a module.

The broker starts it in place of a loader, with one end of a socket pair in FLUX_MODULE_URI. It
takes its orders out of the module's arguments, starts the module's own loader on a socket pair of
its own, and passes frames on in both directions. Each direction waits only for its own receiver
(or for that of what it lets go), and nothing is read that cannot be passed on: no queue grows. What
the rules keep back is bounded (`core.HELD_MAX`), and lost when the module ends. The process ends
with the module, and as it did.
"""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeGuard

import msgspec
import trio
from msgspec import structs

from flux_trio.attach.handle import FluxHandle
from flux_trio.attach.module import end_module, errno_of, explain, welcome_of
from flux_trio.attach.tap.account import PARTY, Account
from flux_trio.attach.tap.core import Action, PassOn, TapCore
from flux_trio.attach.tap.rules import Direction, Orders, parse_orders
from flux_trio.attach.tap.trace_file import opened_trace
from flux_trio.broker import taking_in
from flux_trio.editions.rfc05 import MODULE_URI, Welcome, loader_command
from flux_trio.formats import FormatError
from flux_trio.messages import Message, Request, Response, respond, topics
from flux_trio.messages.native import Frame, FrameReader, encode, to_frame, to_message
from flux_trio.messages.types import STREAMING
from flux_trio.process.groups import unwrapping
from flux_trio.process.local import reap
from flux_trio.services.module_process import system_clock
from flux_trio.transports import EndOfConnection, open_native
from flux_trio.transports.native import READ_BYTES, open_stream
from flux_trio.transports.native import WELCOME as LET_IN

RELEASE_METHOD: Final = "tap-release"
"""The request `NAME.tap-release` lets go of all that is held; the answer has their number."""
JOURNAL_TAG: Final = 0xFFFFFFF0
"""The matchtag of the tap's own request; modules count theirs from 1."""
LOADER_ORDER: Final = "tap-loader="
ENDING_S: Final = 5.0
"""So long a module may take to end when the broker has gone."""


class TapEnd:
    """One end of the tap: frames to and from the broker, or the module."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._sending = trio.Lock()  # both directions and the clock may send here

    async def receive(self) -> list[Frame]:
        """Return the frames that came, [] at the end. Raises RemoteProtocolError."""
        while not (frames := list(self._reader.frames())) and await self._read():
            pass
        return frames

    async def receive_first(self) -> Frame | None:
        """Return the next frame alone, None at the end. Raises RemoteProtocolError."""
        while (frame := next(self._reader.frames(), None)) is None and await self._read():
            pass
        return frame

    async def _read(self) -> bool:
        """Wait for bytes; return whether some have come."""
        try:
            data = await self.stream.receive_some(READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self._reader.feed(data)
        return bool(data)

    async def send(self, frames: Iterable[Frame]) -> None:
        """Send the frames; nothing if the other end has gone."""
        async with self._sending:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.stream.send_all(b"".join(map(encode, frames)))


class Tap:
    """Passes frames on between the two sides as the core says, and has them recorded."""

    def __init__(
        self, broker: TapEnd, module: TapEnd, name: str, core: TapCore, account: Account | None
    ) -> None:
        self._sides: dict[Direction, TapEnd] = {"tx": broker, "rx": module}
        self._release = f"{name}.{RELEASE_METHOD}"
        self._core = core
        self._account = account
        self._changed = trio.Event()  # something has been delayed

    async def run(self) -> None:
        """Pass frames on until one of the sides has ended. Raises RemoteProtocolError."""
        async with trio.open_nursery() as nursery:
            for direction in self._sides:
                nursery.start_soon(self._pass_on, direction, nursery.cancel_scope)
            nursery.start_soon(self._keep_time)
            if self._account is not None:
                await self._follow_events(self._account)
        await self._do(self._core.end())

    async def _follow_events(self, account: Account) -> None:
        """Ask for the events of jobs; where the trace goes on, for those that it has missed too."""
        journal = {"full": account.goes_on}
        request = Request(topics.JOB_EVENTS, journal, JOURNAL_TAG, STREAMING)
        account.own(request)
        await self._sides["tx"].send([to_frame(request)])

    async def _pass_on(self, direction: Direction, both: trio.CancelScope) -> None:
        source = self._sides["rx" if direction == "tx" else "tx"]
        while frames := await source.receive():
            for frame in frames:
                await self._handle(direction, frame, to_message(frame))
        both.cancel()

    async def _handle(self, direction: Direction, frame: Frame, message: Message) -> None:
        if self._account is not None and direction == "rx" and _is_journals(message):
            self._account.own(message)
            self._account.flush()
            return
        if direction == "rx" and isinstance(message, Request) and message.topic == self._release:
            await self._release_held(message)
            return
        await self._do(self._core.handle(direction, frame, message, trio.current_time()))
        if self._core.nkept:
            self._changed.set()

    async def _release_held(self, request: Request) -> None:
        released = self._core.release()
        nreleased = sum(isinstance(each, PassOn) for each in released)
        answer = respond(request, {"released": nreleased})
        if answer is not None:
            await self._sides["tx"].send([to_frame(answer)])
        await self._do(released)

    async def _keep_time(self) -> None:
        """Pass on what was delayed, when it is due."""
        while True:
            self._changed = trio.Event()
            due = self._core.next_due()
            with trio.move_on_at(math.inf if due is None else due):
                await self._changed.wait()
            await self._do(self._core.due(trio.current_time()))

    async def _do(self, actions: list[Action]) -> None:
        """Record the actions, then send: what has been sent is in the trace, if nothing fails."""
        frames: dict[Direction, list[Frame]] = {}
        for each in actions:
            if isinstance(each, PassOn):
                frames.setdefault(each.direction, []).append(each.frame)
            if self._account is not None:
                self._account.note(each)
        if self._account is not None:
            self._account.flush()
        for direction, passed in frames.items():
            await self._sides[direction].send(passed)


def _is_journals(message: Message) -> TypeGuard[Response]:
    if not isinstance(message, Response):
        return False
    return (message.topic, message.matchtag) == (topics.JOB_EVENTS, JOURNAL_TAG)


async def run_tap(uri: str, path: str) -> int:
    """Tap the module at `path`, with the broker at the other end of the socket `uri`.

    Returns the exit code of the module's loader; negative for the signal that has ended it. Raises
    TransportError, RemoteProtocolError, FluxError.
    """
    async with await open_stream(uri, retries=0) as stream:
        broker = TapEnd(stream)
        first = await broker.receive_first()  # the tap passes on what has come with it
        if first is None:
            raise EndOfConnection("the broker has closed the connection before its welcome")
        welcome = welcome_of(to_message(first))
        try:
            orders = parse_orders(welcome.args)
            command = loader_command(orders.loader, path, LOADER_ORDER)
            with unwrapping(FormatError, OSError):
                return await _run(broker, first, welcome, orders, command)
        except (FormatError, OSError) as error:
            await _fail(stream, welcome, error)
            return 1


async def _run(
    broker: TapEnd, first: Frame, welcome: Welcome, orders: Orders, command: list[str]
) -> int:
    payload = first.payload or b""
    passed = msgspec.json.decode(payload.removesuffix(b"\0"))
    passed["args"] = list(orders.args)
    first = structs.replace(first, payload=msgspec.json.encode(passed) + b"\0")
    async with _account(orders, welcome) as account, _started(command) as (process, module):
        await module.send([first])
        await Tap(broker, module, welcome.name, TapCore(orders.rules), account).run()
        await module.stream.aclose()  # by this the module learns that the broker has gone
        with trio.move_on_after(ENDING_S):
            return await process.wait()
        process.kill()
        return await process.wait()


@asynccontextmanager
async def _account(orders: Orders, welcome: Welcome) -> AsyncIterator[Account | None]:
    if not orders.trace:
        yield None
        return
    async with opened_trace(Path(orders.trace)) as (trace, lines, left):
        account = Account(trace, welcome.name, welcome.uuid, lines.flush)
        account.begin(left)
        yield account
        account.end()
        lines.flush()
    if lines.error is not None:
        text = f"the trace is incomplete: {lines.error.strerror}"
        print(f"{PARTY}: {orders.trace}: {text}", file=sys.stderr)


@asynccontextmanager
async def _started(command: list[str]) -> AsyncIterator[tuple[trio.Process, TapEnd]]:
    """Start the module's loader; yield its process and the tap's end of its socket."""
    ours, theirs = socket.socketpair()
    ours.send(LET_IN)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    async with stream:
        with theirs:
            uri = f"fd://{theirs.fileno()}"
            process = await trio.lowlevel.open_process(
                command, pass_fds=[theirs.fileno()], env={**os.environ, MODULE_URI: uri}
            )
        try:
            yield process, TapEnd(stream)
        finally:
            process.kill()
            await reap(process)


async def _fail(stream: trio.SocketStream, welcome: Welcome, error: FormatError | OSError) -> None:
    """Say why there is no module, and end it with an errno."""
    async with open_native(stream) as connection:
        rank = welcome.attrs.get("rank", "-")
        handle = FluxHandle(welcome.name, os.getuid(), connection, system_clock(), rank)
        async with taking_in(handle):
            explain(handle, f"{PARTY}: {error}")
            await end_module(handle, errno_of(error))
