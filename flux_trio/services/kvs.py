"""The kvs service: `KvsCore` under Trio, with a store that may wait for a disk.

A store that waits works on a thread, one call at a time, so that the instance goes on meanwhile.
Between calls, maintenance is done in small slices (`kvs_tending.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from flux_trio.broker import Handle
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import MakeBackup
from flux_trio.messages import Level, topics
from flux_trio.process.threads import OWN
from flux_trio.services.at_once import KvsAtOnce
from flux_trio.services.kvs_backup import Work, back_up_between_rounds, rounds_of, waiting_in
from flux_trio.services.kvs_tending import SETTLE_AFTER_S, TEND_AFTER_S, Tending, settle, tend
from flux_trio.services.recorded_core import make_core
from flux_trio.services.runner import run_core
from flux_trio.store.executing import execute_timed
from flux_trio.store.stores import Store, StoreError

CLOSE_S_MAX: Final = 10.0  # then the file is left as it is, as after SIGKILL: no data is lost
WORK_MAX: Final = 6
"""The core has one round at the store, a StoreOps and a Fetch, and one backup, which it may stop.
The stop of the backup before may still wait."""


async def run(
    handle: Handle,
    store_factory: Callable[[], Store],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `kvs.*` from the store that `store_factory` opens, until cancelled.

    Before `task_status.started()`, raises StoreError if the store cannot be opened, and
    FluxError(EEXIST) if there is a kvs already.
    """
    store = store_factory()  # it may block: no service runs before the kvs
    try:
        handle.register(topics.KVS)
        handle.subscribe(topics.SERVICE_BACK_EVENT)
        for level, text in store.remarks:
            handle.log(level, text)
        if store.waits_for_disk:
            await _serve_from_disk(handle, store, task_status)
        else:
            core = KvsAtOnce(store, make_core(handle, KvsCore).turns)
            await run_core(handle, core, task_status=task_status)
    finally:
        await _close(handle, store)


async def _serve_from_disk(
    handle: Handle, store: Store, task_status: trio.TaskStatus[None]
) -> None:
    to_store, work = trio.open_memory_channel[Work](WORK_MAX)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_store_in_order, handle, store, work)
        turns = make_core(handle, KvsCore).turns
        await run_core(handle, turns, to_store.send_nowait, task_status=task_status)
        nursery.cancel_scope.cancel()


async def _store_in_order(
    handle: Handle, store: Store, work: trio.MemoryReceiveChannel[Work]
) -> None:
    """Perform each round in one visit to the thread; maintain the store between rounds."""
    tending = Tending(trio.current_time() + TEND_AFTER_S)
    settle_at = trio.current_time() + SETTLE_AFTER_S
    while True:
        actions: list[Work] = []
        if not work.statistics().current_buffer_used:  # rounds that wait come first
            with trio.move_on_at(min(tending.at, settle_at)):
                actions.append(await work.receive())
        actions += waiting_in(work)
        if rounds := rounds_of(actions):
            done = await OWN.run(lambda todo: [execute_timed(store, a) for a in todo], rounds)
            for result in done:
                handle.post(result)
        for action in actions:
            if isinstance(action, MakeBackup):
                await back_up_between_rounds(handle, store, action, work)
        if trio.current_time() >= settle_at or store.has_much_unsettled:
            settle_at = await OWN.run(settle, store) + trio.current_time()
        if trio.current_time() >= tending.at:
            tended = await OWN.run(tend, store, tending)
            tending = tended.then(trio.current_time())
            for found in tended.damaged:
                handle.post(found)


async def _close(handle: Handle, store: Store) -> None:
    with trio.move_on_after(CLOSE_S_MAX, shield=True) as scope:
        try:
            if store.waits_for_disk:
                await OWN.run(store.close, abandon_on_cancel=True)
            else:
                store.close()
        except StoreError as error:
            handle.log(Level.ERR, f"kvs: {error.text}")
    if scope.cancelled_caught:
        handle.log(Level.ERR, f"kvs: not closed after {CLOSE_S_MAX:g} s, left as it is")
