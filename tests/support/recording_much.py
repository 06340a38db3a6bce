"""The trace of an instance in which much happens, as lines that a test may edit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import trio

from flux_trio.broker import Handle
from flux_trio.jobtap import Job, Plugin, on
from flux_trio.messages import Request
from flux_trio.testing import InstanceHarness
from flux_trio.testing.fixtures import USERID
from tests.support.replayed import Kept, recording


class Thinker(Plugin):
    """Gives priorities after a second, and takes back what it said."""

    @on("job.priority.get")
    async def priority(self, job: Job) -> int:
        await trio.sleep(1.0)
        return 1000 + job.urgency

    @on("job.state.run")
    def run(self, job: Job) -> None:
        job.annotate({"user": {"thought": True}})


@functools.cache
def everything() -> tuple[str, ...]:
    """The trace of an instance in which modules end, and a plugin takes its time."""
    kept: list[Kept] = []
    with recording(kept), InstanceHarness(plugins=[Thinker()], breaking=None) as instance:
        first = instance.submit(run_s=50.0, nnodes=4)
        waits = instance.submit(run_s=5.0, nnodes=4)
        instance.wait(first, "start")
        instance.crash("sched")
        instance.load("sched")
        waits.cancel()
        instance.request("job-manager.jobtap-list", {"all": True})  # answered by the service
        instance.do(send_at_once, instance._clients[USERID])
        instance.unload("job-exec")
        instance.load("job-exec")
        instance.wait(first)
        instance.unload("job-manager")
        instance.load("job-manager")
        instance.wait(instance.submit(run_s=5.0))
    (one,) = kept
    return tuple(one.lines())


async def send_at_once(client: Handle) -> None:
    """Send what is taken in one turn, by the service and its core, by the kvs and its store."""
    client.send(Request("job-manager.jobtap-list", {"all": True}, 901))
    client.send(Request("job-manager.queue-list", {}, 902))
    client.send(Request("kvs.lookup", {"key": ".."}, 903))
    client.send(Request("kvs.commit", {"ops": [["put", "a", "b"]]}, 904))


def edited(lines: tuple[str, ...], edit: Callable[[dict[str, Any]], bool]) -> Iterator[str]:
    """The trace, with the first record edited for which `edit` returns True."""
    is_done = False
    for line in lines:
        record = msgspec.json.decode(line)
        is_done = is_done or edit(record)
        yield msgspec.json.encode(record).decode() + "\n"
    assert is_done
