"""Watches a live flux-core: what `module.trace` tells is judged, and who holds what is compared.

One connection has the trace and a journal, whose responses are in the trace; it is read at once
whatever the judge does, so that the broker keeps nothing for us. With too much waiting, the rest is
given up and counted. The other connection asks. The broker cannot be asked to pause, so a monitor
that pauses closes the connection with the trace, and later joins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import trio

from flux_trio.attach.audit import RANK_0, Difference, ask_all, compare
from flux_trio.attach.handle import FluxHandle, Modules, open_flux
from flux_trio.attach.judging import LiveJudge
from flux_trio.formats import FormatError
from flux_trio.judge import Violation
from flux_trio.judge.known import load_shipped
from flux_trio.messages import (
    Errno,
    FluxError,
    Message,
    Request,
    Response,
    expect_payload,
    service_of,
    topics,
)
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.process.groups import unwrapping
from flux_trio.trace.pairing import party_of
from flux_trio.trace.traced_message import TracedMessage
from flux_trio.transports import Connection, ConnectionClosed, TransportError, connect_native

KNOWN_VERSION: Final = "0.88"
"""The version of flux-core whose departures are known."""
KNOWN: Final = ("flux-core-0.88", "fluxion-0.54")

MODULES: Final = (
    "job-manager",
    "resource",
    "job-exec",
    "sched-simple",
    "sched-fifo",
    "sched-backfill",
    "sched-fluxion-qmanager",
    "sched-fluxion-resource",
)
"""The modules that are traced, also those that are loaded later."""
SERVICES: Final = frozenset({topics.SCHED, "feasibility"})
"""A module that has one of these services is traced whatever its name is."""

WAITING_MAX: Final = 200_000
"""Messages that may wait for the judge: some seconds of a busy instance, about 400 MB."""
SLICE: Final = 64
"""Messages that are judged at once; then others have their turn."""
LOOK_S: Final = 0.25
"""How often what is complete is judged when nothing comes."""
REST_S: Final = 2.0
"""An instance in which no job has gone on for so long is at rest."""
AGAIN_S: Final = 1.0
"""A difference that is still there after this is no moment of a change."""

_TRACE, _JOURNAL, _STATUS = 1, 2, 3  # matchtags
_ALL_TYPES: Final = 15


class Monitor:
    """What is seen and judged so far."""

    def __init__(
        self, flux: FluxHandle, uri: str, version: str, names: list[str], judge: LiveJudge
    ) -> None:
        self.uri = uri
        self.version = version
        self.judge = judge
        self.began = flux.now()
        self.now = flux.now
        self.audited_at: float | None = None
        self.not_audited = ""
        """Why the last audit could not be made."""
        self._flux = flux
        self._names = names
        """The modules to trace."""
        self._connection: Connection | None = None
        """The one with the trace; None before it is made, and in a pause."""
        self._reading = trio.CancelScope()
        self._paused = self._resumed = trio.Event()
        self._asked_for = 0
        """The last of the judge's beginnings for which was asked what was before; 0 for none."""
        self._ask_at = self.began
        self._waiting: deque[TracedMessage] = deque()
        self._nlost = 0
        self._came = trio.Event()
        self._came_at = self._told_at = self.began
        """When something came last, and what the broker said was the time then.

        A busy broker stamps what it tells with an earlier time.
        """
        self._active_at: float | None = self.began
        """When a job last went on; None once that was audited."""

    @property
    def warning(self) -> str:
        """Return what to say about the version; "" if it is the known one."""
        if self.version.startswith(f"{KNOWN_VERSION}.") or self.version == KNOWN_VERSION:
            return ""
        return (
            f"this is flux-core {self.version}; the departures that are known are those of "
            f"flux-core {KNOWN_VERSION}"
        )

    @property
    def nwaiting(self) -> int:
        """Return how many messages are not judged yet."""
        return len(self._waiting)

    def _follow(self) -> None:
        """Ask for the trace of the modules, then what was before: the answers are in it."""
        self._asked_for = 0
        wanted = {"typemask": _ALL_TYPES, "topic_glob": "*", "names": self._names, "full": True}
        self._send(Request(topics.MODULE_TRACE, wanted, _TRACE, STREAMING, RANK_0))
        self._ask_what_was_before()

    def _ask_what_was_before(self) -> None:
        if self._asked_for:  # a journal begins with a backlog
            journal = {"matchtag": _JOURNAL}
            self._send(Request(topics.JOB_EVENTS_CANCEL, journal, flags=NORESPONSE))
        self._asked_for = self.judge.began
        self._send(Request(topics.JOB_EVENTS, {"full": False}, _JOURNAL, STREAMING))
        self._send(Request(topics.RESOURCE_STATUS, {}, _STATUS, nodeid=RANK_0))

    def _send(self, request: Request) -> None:
        assert self._connection is not None
        with suppress(ConnectionClosed):  # `read` is about to raise the error
            self._connection.send_nowait(request)

    async def read(self, keep: Callable[[TracedMessage], object]) -> None:
        """Take what the broker tells, until the connection ends; `keep` gets each message.

        FluxError if it refuses, or tells what is no message.
        """
        while True:
            async with connect_native(self.uri) as self._connection:
                self._follow()
                self._paused, self._resumed = trio.Event(), trio.Event()
                with trio.CancelScope() as self._reading:
                    await self._read(self._connection, keep)
                self._connection = None
            self._nlost += len(self._waiting)  # who joins again knows of nothing before
            self._waiting.clear()
            self._paused.set()
            await self._resumed.wait()
            config, scheduler, self._names = await _look_round(self._flux)
            self.judge.join(config, scheduler)

    async def pause(self) -> None:
        """Leave the trace, so that the broker keeps nothing for a monitor that does not read."""
        self._reading.cancel()
        await self._paused.wait()

    def resume(self) -> None:
        """Join again after a pause, as one that joins late."""
        self._resumed.set()

    async def _read(self, connection: Connection, keep: Callable[[TracedMessage], object]) -> None:
        while True:
            for message in await connection.receive():
                if _is_end_of_journal(message):  # the job manager has left, and may come back
                    self._asked_for, self._ask_at = 0, self.now() + AGAIN_S
                told = _told(message)
                if told is None:
                    continue
                keep(told)
                if len(self._waiting) >= WAITING_MAX:
                    self._nlost += len(self._waiting)
                    self._waiting.clear()
                self._waiting.append(told)
            self._came_at = self.now()
            self._came.set()

    async def judge_all(self, report: Callable[[Violation], object]) -> None:
        """Judge what has come, for ever; `report` gets what is broken."""
        while True:
            self._judge_slice(report)
            await trio.lowlevel.checkpoint()
            if not self._waiting:
                self._came = trio.Event()
                with trio.move_on_after(LOOK_S):
                    await self._came.wait()

    def judge_rest(self, report: Callable[[Violation], object]) -> None:
        """Judge all that has come; nothing more will."""
        while self._waiting:
            self._judge_slice(report)
        _report(self.judge.judge(float("inf")), report)

    def _judge_slice(self, report: Callable[[Violation], object]) -> None:
        lost, self._nlost = self._nlost, 0
        if lost:
            self.judge.lose(lost)
        for _ in range(min(SLICE, len(self._waiting))):
            told = self._waiting.popleft()
            if _is_of_a_job(told):
                self._active_at = self.now()
            self.judge.put(told)
            self._told_at = told.timestamp
        quiet_s = 0.0 if self._waiting else self.now() - self._came_at
        _report(self.judge.judge(self._told_at + quiet_s), report)
        if self._connection is None:
            return
        if self.judge.began != self._asked_for and self.now() >= self._ask_at:
            self._ask_what_was_before()

    async def audit_at_rest(self, report: Callable[[str], object]) -> None:
        """Audit each time that the instance has come to rest; `report` gets the differences."""
        while True:
            at = self._active_at
            if at is not None and self.now() - at >= REST_S and not self._waiting:
                self._active_at = None
                await self.audit(report)
            await trio.sleep(LOOK_S)

    async def audit(self, report: Callable[[str], object]) -> None:
        """Compare who holds what; a difference counts if it is there twice.

        A party that is not there at the moment is no error.
        """
        try:
            found = await self._differences()
        except FluxError as error:
            if error.errnum == Errno.EPROTO:
                raise
            self.not_audited = str(error)
            return
        self.audited_at, self.not_audited = self.now(), ""
        self.judge.audited(map(str, found))
        for each in found:
            report(str(each))

    async def _differences(self) -> list[Difference]:
        found = compare(await ask_all(self._flux))
        if found:
            await trio.sleep(AGAIN_S)
            again = compare(await ask_all(self._flux))
            found = [each for each in found if each in again]
        return found


@asynccontextmanager
async def open_monitor(uri: str) -> AsyncIterator[Monitor]:
    """Join the instance at `uri`.

    Raises the errors of `open_flux`, and FluxError for a user who may not trace.
    """
    with unwrapping(TransportError, FluxError):
        async with open_flux(uri, "flux-trio-monitor") as flux:
            version = await flux.attribute("version") or "unknown"
            config, scheduler, names = await _look_round(flux)
            known = [each for name in KNOWN for each in load_shipped(name)]
            judge = LiveJudge(config, scheduler, known, flux.now())
            yield Monitor(flux, uri, version, names, judge)


async def _look_round(flux: FluxHandle) -> tuple[dict[str, Any], str, list[str]]:
    """Return the configuration, the party that schedules, and the modules to trace."""
    config = await flux.call(topics.CONFIG_GET, None, RANK_0)
    modules = await flux.ask(topics.MODULE_LIST, Modules, None, RANK_0)
    return config, _holder(modules, topics.SCHED), _names(modules)


def _holder(modules: Modules, service: str) -> str:
    """Return the party that has a service, as the trace names it; "" for nobody."""
    module = next((each.name for each in modules.mods if service in each.services), "")
    return party_of(module)


def _names(modules: Modules) -> list[str]:
    found = (each.name for each in modules.mods if not SERVICES.isdisjoint(each.services))
    return list(dict.fromkeys((*MODULES, *found)))


def _told(message: Message) -> TracedMessage | None:
    """Return what the trace tells; None for another response. FluxError."""
    if not isinstance(message, Response) or message.matchtag == _STATUS:
        return None
    if message.errnum == Errno.EPERM:
        raise FluxError(
            Errno.EPERM,
            f"{message.topic}: {message.error_text or 'not permitted'}: only the owner of the "
            "instance may follow the messages of its modules",
        )
    if message.matchtag != _TRACE:
        return None
    if message.errnum:
        raise FluxError(message.errnum, f"{message.topic}: {message.error_text}")
    return expect_payload(message, TracedMessage)


def _is_end_of_journal(message: Message) -> bool:
    """Whether the journal has ended, and not because it was canceled."""
    if not isinstance(message, Response) or message.matchtag != _JOURNAL:
        return False
    return message.errnum not in (0, Errno.ENODATA, Errno.EPERM)


def _is_of_a_job(told: TracedMessage) -> bool:
    """Whether a message shows that a job goes on, and is not one of our own."""
    if told.topic == topics.JOB_EVENTS:
        return True
    is_of_sched = service_of(told.topic) == topics.SCHED
    return is_of_sched and not told.topic.endswith("resource-status")


def _report(found: Iterable[Violation], report: Callable[[Violation], object]) -> None:
    try:
        for each in found:
            report(each)
    except FormatError as error:
        raise FluxError(Errno.EPROTO, f"{topics.MODULE_TRACE}: payload: {error}") from None
