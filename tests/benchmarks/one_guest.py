"""What one guest at full speed does to the owner: calls a second, medians, memory.

A real instance in a process of its own, the guest in another, the owner in this one. Each attack
runs for ONE_GUEST_S seconds (an environment variable, 5 unless set; the mark in
docs/how-we-know/speed.md is about 60), between two intervals of the same length without it, so that
what else the machine does is in both. A line for each attack: `value` is the owner's median with
the guest, in ms; with it come the median without (`idle_ms`) and the 99th percentiles, how much the
instance's resident memory grew at most (`more_mb`) and how many messages the guest sent (`sent`).

The `cpu` figures are the same calls in CPU time that the instance used from the request to its
answer: what a call takes on a machine where nothing else runs, however busy this one is.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import trio

from flux_trio.client import Client, open_client
from flux_trio.formats import Jobspec
from flux_trio.messages import Event, Flag, Request, topics
from flux_trio.sim import make_machine
from flux_trio.transports import Connection, ConnectionOverflow, TransportError, connect_websocket
from tests.benchmarks.measure import SMALL, Figure, measured_instance
from tests.benchmarks.pending import pending_job

SECONDS: Final = float(os.environ.get("ONE_GUEST_S", "0.2" if SMALL else "5"))
IDLE_S: Final = min(SECONDS, 10.0)
"""Seconds that the idle value is taken for, before the attack and again after it."""
JOBS: Final = int(os.environ.get("ONE_GUEST_JOBS", "20" if SMALL else "5000"))  # that a list has
CONNECTIONS: Final = 16  # of the guest, for attacks that need no more
AHEAD: Final = 256  # messages that the guest has unanswered on each
GUEST: Final = 4242
CPUCLOCK_SCHED: Final = 2  # Linux: the kind of CPU-time clock, in the lowest bits of its number
FRAME_CONNECTIONS: Final = 60
UPGRADE: Final = (
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Authorization: Bearer {token}\r\n\r\n"
)
PAUSE_S: Final = 0.01  # between the owner's calls

Attack = Callable[["Guest"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GuestFigure(Figure):
    """One attack; see the head of this file."""

    attack: str
    idle_ms: float
    p99_ms: float
    idle_p99_ms: float
    cpu_ms: float
    idle_cpu_ms: float
    cpu_p99_ms: float
    more_mb: float
    sent: int


class Guest:
    """The attacker: where the instance is, one job of its own, and what it has sent."""

    def __init__(self, uri: str, token: str, jobid: int) -> None:
        self.uri = uri
        self.token = token
        self.jobid = jobid
        self.sent = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with connect_websocket(self.uri, self.token) as connection:
            yield connection

    async def flood(self, make: Callable[[int], Request | Event], *, reads: bool = True) -> None:
        """Send for ever over several connections, each anew when it has been cut."""
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(self._flood_one, make, reads)

    async def _flood_one(self, make: Callable[[int], Request | Event], reads: bool) -> None:
        while True:
            try:
                async with self.connection() as connection:
                    await self._send_all(connection, make, reads)
            except* (TransportError, OSError):
                pass
            await trio.sleep(0.01)

    async def _send_all(
        self, connection: Connection, make: Callable[[int], Request | Event], reads: bool
    ) -> None:
        matchtag = answered = 0
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                nonlocal answered
                while True:
                    answered += len(await connection.receive())

            if reads:
                nursery.start_soon(read)
            while True:
                while not connection.is_behind and (not reads or matchtag - answered < AHEAD):
                    matchtag += 1
                    message = make(matchtag)
                    try:
                        connection.send_nowait(message)
                    except ConnectionOverflow:
                        break
                    answered += isinstance(message, Event) or not message.matchtag
                    self.sent += 1
                await trio.sleep(0.001)


def _request(topic: str, payload: Any, *, streaming: bool = False) -> Callable[[int], Request]:
    flags = int(Flag.STREAMING if streaming else Flag.NONE)
    return lambda matchtag: Request(topic, payload, matchtag, flags)


async def calls(guest: Guest) -> None:
    """Calls that cost little."""
    await guest.flood(_request(topics.BROKER_INFO, None))


async def no_service(guest: Guest) -> None:
    """Requests of 1 MB to no service."""
    await guest.flood(_request("nobody.there", {"x": "x" * 1_000_000}))


async def unanswered(guest: Guest) -> None:
    """Requests of 100 kB that wait for what does not come."""
    await guest.flood(_request(topics.JOB_DRAIN, {"x": "x" * 100_000}))


async def submits(guest: Guest) -> None:
    """Jobs, up to the limit and on."""
    jobspec = Jobspec.from_command(["true"], attributes={"system.x": "x" * 10_000}).to_json()
    await guest.flood(_request(topics.INGEST_SUBMIT, {"jobspec": jobspec, "urgency": 0}))


async def globs(guest: Guest) -> None:
    """Subscriptions to what is hard to match, and events."""

    def make(n: int) -> Request | Event:
        if n <= 32:
            return Request(topics.BROKER_SUBSCRIBE, {"topic": "*a" * 127 + "b"}, n)
        return Event("a" * 200 + str(n % 1000), {})

    await guest.flood(make)


async def watches(guest: Guest) -> None:
    """Streams of an eventlog, as many as may be, and leaving them."""
    payload = {"id": guest.jobid}
    while True:
        with trio.move_on_after(1.0):
            await guest.flood(_request(topics.INFO_WATCH, payload, streaming=True))


async def attaches(guest: Guest) -> None:
    """Streams of output, as many as may be."""
    payload = {"id": guest.jobid, "path": "guest.output"}
    await guest.flood(_request(topics.INFO_WATCH, payload, streaming=True))


async def lists(guest: Guest) -> None:
    """Lists of all jobs."""
    await guest.flood(_request(topics.LIST_LIST, {"max_entries": 0, "states": 0xFF}))


async def unread_lists(guest: Guest) -> None:
    """The same, and nobody reads them."""
    listing = _request(topics.LIST_LIST, {"max_entries": 0, "states": 0xFF})
    await guest.flood(listing, reads=False)


async def lookups(guest: Guest) -> None:
    """What is stored of a job."""
    keys = ["jobspec", "eventlog", "R"]
    await guest.flood(_request(topics.INFO_LOOKUP, {"id": guest.jobid, "keys": keys}))


async def memos(guest: Guest) -> None:
    """Memos of a job."""
    await guest.flood(_request(topics.JOB_MEMO, {"id": guest.jobid, "memo": {"a": "x" * 8000}}))


async def raises(guest: Guest) -> None:
    """Exceptions on all jobs of the guest, and on those that there are not."""
    payload = {"severity": 7, "type": "x", "states": 0xFF, "userid": GUEST, "note": "x" * 1000}
    await guest.flood(_request(topics.JOB_RAISEALL, payload))


async def connections(guest: Guest) -> None:
    """Connections that are opened and closed again."""

    async def connect() -> None:
        while True:
            try:
                async with guest.connection():
                    guest.sent += 1
            except (TransportError, OSError):
                await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(connect)


async def _frames(guest: Guest, first: bytes, more: bytes) -> None:
    """Send frames of a WebSocket for ever over as many connections as a guest may have."""

    async def send_all() -> None:
        where = urlsplit(guest.uri)
        while True:
            try:
                async with await trio.open_tcp_stream(where.hostname or "", where.port or 0) as at:
                    await at.send_all(UPGRADE.format(token=guest.token).encode() + first)
                    while True:
                        await at.send_all(more)
                        guest.sent += 1
            except OSError:
                await trio.sleep(0.01)
            except trio.BrokenResourceError:
                pass

    async with trio.open_nursery() as nursery:
        for _ in range(FRAME_CONNECTIONS):
            nursery.start_soon(send_all)


async def empty_frames(guest: Guest) -> None:
    """Fragments of no bytes: 6 bytes each on the wire."""
    await _frames(guest, b"\x02\x80\0\0\0\0", b"\0\x80\0\0\0\0" * 10_000)


async def pongs(guest: Guest) -> None:
    """Answers to pings that nobody has sent."""
    await _frames(guest, b"", b"\x8a\x80\0\0\0\0" * 10_000)


async def trickle(guest: Guest) -> None:
    """A long frame, byte by byte."""
    await _frames(guest, b"\x82\xff\0\0\0\0\0\x0f\0\0" + bytes(4), b"\0")


ATTACKS: Final[dict[str, Attack]] = {
    each.__name__: each
    for each in (
        calls,
        no_service,
        unanswered,
        submits,
        globs,
        watches,
        attaches,
        lists,
        unread_lists,
        lookups,
        memos,
        raises,
        connections,
        empty_frames,
        pongs,
        trickle,
    )
}


def one_guest() -> Iterator[Figure]:
    """Each attack in turn; some of them at the small size: each has an instance of its own."""
    for name in list(ATTACKS)[:: 4 if SMALL else 1]:
        yield trio.run(_measure, name)


async def _measure(name: str) -> GuestFigure:
    with tempfile.TemporaryDirectory() as directory:
        async with (
            _process("serve", directory) as (_, said),
            open_client(said["uri"], said["token"]) as owner,
        ):
            memory = partial(_resident_mb, said["pid"])
            cpu = partial(_cpu_s, said["pid"])
            before = memory()
            idle = await _calls(owner, cpu, IDLE_S)
            command = ("attack", name, said["uri"], said["guest"], str(said["jobid"]))
            async with _process(*command) as (process, _):
                most = [before]
                during = await _calls(owner, cpu, SECONDS, lambda: most.append(memory()))
                sent = await _ended(process)
            idle += await _calls(owner, cpu, IDLE_S)
    took, took_cpu = [each.wall for each in during], [each.cpu for each in during]
    return GuestFigure(
        value=_ms(statistics.median(took)),
        unit="ms",
        n=len(during),
        attack=name,
        idle_ms=_ms(statistics.median(each.wall for each in idle)),
        p99_ms=_ms(_percentile(took)),
        idle_p99_ms=_ms(_percentile([each.wall for each in idle])),
        cpu_ms=_ms(statistics.median(took_cpu)),
        idle_cpu_ms=_ms(statistics.median(each.cpu for each in idle)),
        cpu_p99_ms=_ms(_percentile(took_cpu)),
        more_mb=round(max(most) - before, 1),
        sent=sent,
    )


class Took(NamedTuple):
    """How long a call took, in seconds: by the clock, and in CPU time of the instance."""

    wall: float
    cpu: float


async def _calls(
    owner: Client,
    cpu: Callable[[], float],
    seconds: float,
    beside: Callable[[], object] = lambda: None,
) -> list[Took]:
    """How long the owner's calls take, for so many seconds."""
    took = []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        began, began_cpu = time.perf_counter(), cpu()
        await owner.call(topics.JOB_QUEUE_STATUS, {})
        took.append(Took(time.perf_counter() - began, cpu() - began_cpu))
        beside()
        await trio.sleep(PAUSE_S)
    return took


@asynccontextmanager
async def _process(*words: str) -> AsyncIterator[tuple[trio.Process, dict[str, Any]]]:
    """This file as another program, and the JSON line that it says first."""
    command = [sys.executable, "-m", __name__, *words]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        yield process, json.loads(await _line(process))
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _line(process: trio.Process) -> bytes:
    assert process.stdout is not None
    said = b""
    while not said.endswith(b"\n") and (part := await process.stdout.receive_some()):
        said += part
    return said


async def _ended(process: trio.Process) -> int:
    """Tell the guest to stop; how much it has sent."""
    assert process.stdin is not None
    await process.stdin.aclose()
    return int(json.loads(await _line(process))["sent"])


async def _serve(directory: str) -> None:
    """An instance with JOBS pending jobs, until standard input ends."""
    machine = make_machine(1, 1)
    async with measured_instance(machine, statedir=Path(directory)) as client:
        for first in range(0, JOBS, 500):
            async with trio.open_nursery() as nursery:
                for place in range(first, min(first + 500, JOBS)):
                    jobspec = {"jobspec": pending_job(place)}
                    nursery.start_soon(client.call, topics.INGEST_SUBMIT, jobspec)
        guest = await client.call(topics.BROKER_TOKEN, {"userid": GUEST, "name": "guest"})
        info = await client.call(topics.BROKER_INFO)
        async with open_client(info["uri"], guest["token"]) as own:
            jobid = await own.submit(pending_job(JOBS))
        token = (Path(directory) / "token").read_text()
        said = {"uri": info["uri"], "token": token, "guest": guest["token"], "jobid": jobid.id}
        print(json.dumps(said | {"pid": os.getpid()}), flush=True)
        await _stdin_ends()


async def _attack(*words: str) -> None:
    name, uri, token, jobid = words
    guest = Guest(uri, token, int(jobid))
    print("{}", flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ATTACKS[name], guest)
        await _stdin_ends()
        print(json.dumps({"sent": guest.sent}), flush=True)
        nursery.cancel_scope.cancel()


async def _stdin_ends() -> None:
    await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def _cpu_s(pid: int) -> float:
    """Of a process, so far, by its CPU-time clock: what clock_getcpuclockid(3) makes of its id."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def _percentile(took: list[float]) -> float:
    return sorted(took)[min(len(took) - 1, len(took) * 99 // 100)]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        trio.run(_serve, sys.argv[2])
    else:
        trio.run(_attack, *sys.argv[2:6])
