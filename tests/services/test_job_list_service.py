"""The job list on a broker, with a kvs and somebody who plays the job manager."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from flux_trio.broker import Handle
from flux_trio.messages import Errno, Flag, Response
from flux_trio.services import job_list, kvs
from flux_trio.store.stores import MemoryStore
from tests.support.eventlogs import inactive, pending
from tests.support.listing import key
from tests.support.serving import World


async def serve_kvs(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    await kvs.run(handle, MemoryStore, task_status=task_status)


async def test_job_list_follows_a_job_manager_and_reads_the_store() -> None:
    world = World()
    manager = world.handle("job-manager")
    manager.register("job-manager")
    client = world.client()
    async with world.serving("kvs", serve_kvs), world.serving("job-list", job_list.run):
        (journal,) = await manager.receive()

        def tell(events: list[Any], place: int) -> None:
            entries = [[1, place + n, msgspec.to_builtins(e)] for n, e in enumerate(events)]
            payload = {"events": entries}
            streaming = int(Flag.STREAMING)
            manager.send(
                Response(
                    journal.topic, payload, 0, journal.matchtag, streaming, routes=journal.routes
                )
            )

        tell([], 0)
        tell(pending(), 0)
        (job,) = (await client.ask("job-list.list"))["jobs"]
        assert (job["id"], job["state"]) == (1, 8)

        watch = client.send("job-info.eventlog-watch", {"id": 1, "path": "x"}, streaming=True)
        await client.ask("kvs.commit", {"ops": [["append", key(1, "x"), "line\n"]]})
        assert (await client.answer(watch)).payload == {"event": "line"}
        tell(inactive()[4:], 4)
        assert (await client.answer(watch)).errnum == Errno.ENODATA
