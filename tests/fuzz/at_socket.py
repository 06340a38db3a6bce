"""An instance in a process of its own, and what comes in at its native door, a real socket.

Each connection sends requests with something wrong in them, then frames, and ends with the first
frame that is none: so each case that is counted was looked at. Beside them an honest client has one
connection to the end. What grows, or harms it, is a `Finding`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import trio

from flux_trio.attach.handle import FluxHandle, open_flux
from flux_trio.messages import USERID_UNKNOWN, RemoteProtocolError, native, topics
from flux_trio.protocols import ACTIVE
from flux_trio.transports.native import open_stream
from tests.fuzz import mutations
from tests.fuzz.run import OWNER, Finding, requests, through_routers
from tests.support.instance import FLUX_TRIO, environment
from tests.support.roles import JOB_SPEC

READY: Final = (sys.executable, "-c", "print('ready', flush=True); input()")
REQUESTS: Final = 100  # of one connection in FRAMES_ONLY + 1, before its frames
FRAMES_ONLY: Final = 15  # connections: of three frames, two are the last of their connection
FRAMES_MAX: Final = 200  # of one connection, if all of them are taken
CONNECTIONS: Final = 800  # of a round, one after another; the honest client asks between them
GROWTH_KB_MAX: Final = 48 * 1024
"""Growth of the process after the first tenth of the rounds: some 12 bytes a case.

Of these, 4 are caches that fill with ids of new jobs, and end at 4,096 of them; the rest is free
memory that the allocator keeps. What is in use without the caches does not grow.
"""
WAIT_S: Final = 300.0  # only what hangs takes so long
PAGE_KB: Final = os.sysconf("SC_PAGE_SIZE") // 1024


def fuzz_socket(source: Random, count: int) -> None:
    """At least `count` cases at the native door of an instance. Raises Finding."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "config.toml"
        config.write_text("[exec]\nsimulate = true\n")
        statedir = Path(directory) / "s"
        start = ["start", "--edition", "current", "--statedir", str(statedir), "-c", str(config)]
        with subprocess.Popen(
            [*FLUX_TRIO, *start, *READY],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as running:
            assert running.stdout is not None
            running.stdout.readline()
            try:
                trio.run(_play, source, count, f"local://{statedir}/local-0", running.pid)
            finally:
                running.communicate(b"\n", timeout=WAIT_S)
        if running.returncode != 0:
            raise Finding(f"the instance ended with {running.returncode}")


async def _play(source: Random, count: int, uri: str, pid: int) -> None:
    seen: Counter[str] = Counter()
    sizes: list[int] = []  # kB of the process, after each round
    async with open_flux(uri, "honest") as honest:
        modules = await _modules(honest)
        while seen.total() < count:
            jobs = await _submit(honest), await _submit(honest)
            for _ in range(CONNECTIONS):
                sent = b"".join(_bytes_of_connection(source, jobs, seen))
                with trio.fail_after(WAIT_S):
                    await _say(uri, sent)
                    await honest.call(f"{topics.JOB_MANAGER}.stats-get")
            await _clear(honest)
            if await _modules(honest) != modules:
                raise Finding(f"other modules than {modules}: {await _modules(honest)}")
            sizes.append(_resident_kb(pid))
            print(f"{seen.total()} cases at the socket: {sizes[-1]} kB", flush=True)
    if sizes[-1] - sizes[len(sizes) // 10] > GROWTH_KB_MAX:
        raise Finding(f"the process grows: {sizes} kB")
    print(f"at the socket: {dict(seen.most_common())}, no finding", flush=True)


def _bytes_of_connection(
    source: Random, jobs: tuple[int, int], seen: Counter[str]
) -> Iterator[bytes]:
    count = 0 if source.randrange(FRAMES_ONLY + 1) else REQUESTS
    for request in through_routers(source, list(requests(source, count, jobs, OWNER)), OWNER):
        seen["requests"] += 1
        yield native.encode(native.to_frame(request))
    for _ in range(FRAMES_MAX):
        data = mutations.native_frame(source)
        reader = native.FrameReader()
        reader.feed(data)
        yield data
        try:
            nframes = len(list(reader.frames()))
        except RemoteProtocolError:
            seen["frames that are none"] += 1
            return
        seen["frames"] += nframes
        if reader.has_part:
            seen["frames without an end"] += 1
            return


async def _say(uri: str, sent: bytes) -> None:
    """Send all of it, and read the answers until the door closes the connection."""
    stream = await open_stream(uri)
    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(_send, stream, sent)
        with suppress(trio.BrokenResourceError):
            async for _ in stream:
                pass


async def _send(stream: trio.SocketStream, sent: bytes) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.send_all(sent)
        await stream.send_eof()


async def _submit(honest: FluxHandle) -> int:
    answer = await honest.call(topics.INGEST_SUBMIT, {"jobspec": JOB_SPEC})
    return int(answer["id"])


async def _clear(honest: FluxHandle) -> None:
    """End and forget the jobs that were submitted meanwhile: they are no growth."""
    cancel = {"userid": USERID_UNKNOWN, "states": ACTIVE, "severity": 0, "type": "cancel"}
    await honest.call(topics.LIST_UNPAUSE)
    await honest.call(topics.JOB_RAISEALL, {**cancel, "dry_run": False})
    while (await honest.call(topics.JOB_PURGE, {"num_limit": 0, "force": True}))["count"]:
        pass


async def _modules(honest: FluxHandle) -> list[tuple[str, int]]:
    """Each module and its status; one that has crashed is another, or is not there."""
    answer = await honest.call(topics.MODULE_LIST)
    return sorted((each["name"], each["status"]) for each in answer["mods"])


def _resident_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KB
