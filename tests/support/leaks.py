"""What an instance holds of this process: counted before and after something that may leak."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio
import trio.testing

from flux_trio.instance import Instance
from flux_trio.services.runner import Timers


def holdings(instance: Instance) -> dict[str, Any]:
    """Tasks, peers, names, subscriptions, requests, timers, file descriptors, child processes."""
    gc.collect()
    router = instance.router
    peers = router.peers.values()
    timers = [each for each in gc.get_objects() if type(each) is Timers]
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "peers": sorted(router.peers),
        "services": {service: peer.name for service, peer in sorted(router.services.items())},
        "subscriptions": sum(len(peer.subscriptions.globs) for peer in peers),
        "requests": sum(len(requests) for peer in peers for requests in peer.inflight.values()),
        "timers": len(timers),
        "fds": descriptors(),
        "children": children(),
    }


def descriptors() -> list[str]:
    """What each file descriptor of this process is, such as a path or `socket:[123]`."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the directory itself, which is closed by now
            found.append(f"{link.name} {link.readlink()}")
    return sorted(found)


def children() -> int:
    """Child processes of this process."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += parent == str(os.getpid())
    return found


@asynccontextmanager
async def nothing_left(instance: Instance) -> AsyncIterator[None]:
    """After the block the instance holds what it held before it."""
    await trio.testing.wait_all_tasks_blocked()
    before = holdings(instance)
    yield
    await trio.testing.wait_all_tasks_blocked()
    after = holdings(instance)
    left = {what: (before[what], now) for what, now in after.items() if before[what] != now}
    assert left == {}, left
