"""The resource service on a broker, with a kvs beside it."""

from __future__ import annotations

import pytest
import trio

from flux_trio.broker import Handle
from flux_trio.config import ResourceEntry
from flux_trio.cores.resource import inventory_from_config
from flux_trio.formats import Idset
from flux_trio.messages import FluxError
from flux_trio.services import kvs, resource
from flux_trio.store.stores import MemoryStore
from tests.support.serving import World

INVENTORY = inventory_from_config([ResourceEntry("node[0-3]", cores="0-3")])


async def serve(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    await resource.run(handle, INVENTORY, Idset.parse("3"), task_status=task_status)


async def test_scheduler_follows_drains_which_the_next_service_remembers() -> None:
    world, store = World(), MemoryStore()
    sched, admin = world.client("sched"), world.client("admin")

    async def serve_kvs(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await kvs.run(handle, lambda: store, task_status=task_status)

    async with world.serving("kvs", serve_kvs):
        async with world.serving("resource", serve):
            stream = sched.send("resource.acquire", {"group": "default"}, streaming=True)
            assert (await sched.answer(stream)).payload["online"] == "0-2"
            await admin.ask("resource.drain", {"targets": "node1", "reason": "fan"})
            offline = {"type": "offline", "targets": "1"}
            assert (await sched.answer(stream)).payload == offline
        async with world.serving("resource", serve):
            stream = sched.send("resource.acquire", {"group": "default"}, streaming=True)
            assert (await sched.answer(stream)).payload["offline"] == "1"
            assert list((await admin.ask("resource.status"))["drained"]) == ["1"]
            with pytest.raises(FluxError, match="rank 3 excluded"):
                await admin.ask("resource.drain", {"targets": "3"})
