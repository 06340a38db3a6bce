"""A handle at a broker of flux-core: what runs with a `Handle` here can serve there.

    async with open_flux(uri, "my-service") as flux:
        answer = await flux.call("attr.get", {"name": "size"})  # FluxError with errnum and text
        async with flux.stream("job-manager.events-journal", {"full": True}) as responses:
            async for payload in responses: ...
        flux.subscribe("job-exception")  # a prefix of topics, not a glob
        flux.register("sched")
        await flux.wait_settled()  # the broker has granted both
        for message in await flux.receive():  # Requests of that service, Events
            flux.send(respond(message, {...}))  # respond_error(message, errnum, text), Event(...)
        flux.log(Level.INFO, "text")

A request's route stack goes back with the answer as it came. Events have the userid and the
rolemask of their sender.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import trio
from msgspec import structs

from flux_trio.broker import Clock, LogEntry, RemoteHandle, ServiceExit, taking_in
from flux_trio.messages import (
    NODEID_ANY,
    Errno,
    FluxError,
    Message,
    Request,
    Response,
    expect_payload,
    native,
    respond,
    topics,
)
from flux_trio.messages.address import FLUX_URI_DEFAULT
from flux_trio.messages.types import NORESPONSE
from flux_trio.process.groups import unwrapping
from flux_trio.services.module_process import system_clock
from flux_trio.transports import ConnectionClosed, NativeConnection, TransportError, connect_native
from flux_trio.transports.native import RETRIES

URI_VARIABLE: Final = "FLUX_URI"
RETRIES_VARIABLE: Final = "FLUX_LOCAL_CONNECTOR_RETRY_COUNT"

ATTR_GET: Final = "attr.get"
EVENT_SUBSCRIBE: Final = "event.subscribe"
SERVICE_ADD: Final = "service.add"


T = TypeVar("T")


class FluxHandle(RemoteHandle):
    """A handle over a connection with flux-core; `taking_in` receives for it."""

    REGISTER: ClassVar[str] = SERVICE_ADD
    SUBSCRIBE: ClassVar[str] = EVENT_SUBSCRIBE

    def __init__(
        self, name: str, userid: int, connection: NativeConnection, clock: Clock, rank: str = "-"
    ) -> None:
        super().__init__(name, userid, connection, clock)
        self._native = connection
        self.rank = rank  # of the broker; "-", RFC 5424's word for unknown, until somebody asks

    def log(self, level: int, text: str) -> None:
        """Write to the broker's log, in the form of RFC 5424.

        The priority has the severity above the facility, 0 here: flux-core reads it so.
        """
        entry = LogEntry(self.now(), level, self.name, text)
        time = datetime.fromtimestamp(entry.t, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        head = f"<{level << 3}>1 {time} {self.rank} {entry.party} {os.getpid()} - - "
        request = native.to_frame(Request(topics.LOG_APPEND, flags=NORESPONSE))
        line = (head + entry.text).encode(errors="replace")
        with suppress(ConnectionClosed):  # `take_in` is about to raise the error
            self._native.send_frame_nowait(structs.replace(request, payload=line))

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """Do nothing: flux-core has no trace for it."""

    async def ask(
        self,
        topic: str,
        shape: type[T],
        payload: dict[str, Any] | None = None,
        nodeid: int = NODEID_ANY,
    ) -> T:
        """Return the answer as a `shape`, a struct of msgspec.

        FluxError with errnum and text of a failure; EPROTO, with topic and key, for an answer that
        has another shape.
        """
        answer = await self.call(topic, payload, nodeid)
        return expect_payload(Response(topic, answer), shape)

    async def attribute(self, name: str) -> str | None:
        """Return the attribute `name` of the broker, None if it has no such."""
        try:
            return (await self.ask(ATTR_GET, Attribute, {"name": name})).value
        except FluxError as error:
            if error.errnum == Errno.ENOENT:
                return None
            raise


class Attribute(msgspec.Struct):
    """The answer to attr.get."""

    value: str


class Module(msgspec.Struct):
    """A module of the broker, in the answer to module.list."""

    name: str
    services: list[str] = []


class Modules(msgspec.Struct):
    """The answer to module.list."""

    mods: list[Module]


def answer_of_module(message: Message, rank: str) -> Response | None:
    """Return the answer to what every module of flux-core answers; None for another message."""
    if not isinstance(message, Request):
        return None
    match message.topic.partition(".")[2]:
        case "ping":
            payload = message.payload if isinstance(message.payload, dict) else {}
            who = {"userid": message.userid, "rolemask": message.rolemask}
            hops = "!".join(hop[:8] for hop in message.routes)
            place = int(rank) if rank.isdigit() else 0
            return respond(message, {**payload, "route": hops, **who, "rank": place})
        case "rusage":
            used = resource.getrusage(resource.RUSAGE_SELF)
            names = [name for name in dir(used) if name.startswith("ru_")]
            return respond(message, {name[3:]: getattr(used, name) for name in names})
    return None


def flux_uri(given: str | None, environ: Mapping[str, str]) -> str:
    """Return the URI `given`, else that of FLUX_URI, else that of the broker of a whole system."""
    return given or environ.get(URI_VARIABLE) or FLUX_URI_DEFAULT


@asynccontextmanager
async def open_flux(uri: str, name: str) -> AsyncIterator[FluxHandle]:
    """Yield a handle, `name` in logs, at the broker at `uri` (local://PATH or fd://N).

    Connects again as often as FLUX_LOCAL_CONNECTOR_RETRY_COUNT says. Raises ConnectionRefused;
    EndOfConnection or ConnectionLost if the broker leaves during the block; FluxError if it refuses
    a service name or a subscription.
    """
    with unwrapping(TransportError, FluxError):
        async with (
            connect_native(uri, _retries()) as connection,
            taking_in(FluxHandle(name, os.getuid(), connection, system_clock())) as handle,
        ):
            handle.rank = await handle.attribute("rank") or handle.rank
            yield handle


def _retries() -> int:
    given = os.environ.get(RETRIES_VARIABLE, "")
    return int(given) if given.isascii() and given.isdigit() else RETRIES


# --- a service that ends by a signal


Service = Callable[..., Awaitable[object]]
"""Serves with the handle that it gets, until cancelled."""


async def serve(uri: str, name: str, service: Service) -> None:
    """Run `service` at the broker at `uri` until SIGTERM or SIGINT.

    The broker then tells those who have talked to it that it is gone. Raises TransportError if the
    broker leaves or lets nobody in, FluxError and ServiceExit as the service does.
    """
    with (
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
        unwrapping(TransportError, FluxError, ServiceExit),
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, uri, name, service)
            async for _ in signals:
                nursery.cancel_scope.cancel()
                break


async def _serve(uri: str, name: str, service: Service) -> None:
    async with open_flux(uri, name) as flux:
        await service(flux)
