"""A backup of the kvs: the thread that makes it also does the rounds that come meanwhile."""

from __future__ import annotations

from typing import TypeAlias

import trio

from flux_trio.broker import Handle
from flux_trio.cores.kvs.ops import BackedUp, Fetch, MakeBackup, StopBackup, StoreOps
from flux_trio.messages import Errno
from flux_trio.process.threads import OWN
from flux_trio.store.executing import back_up, execute_timed
from flux_trio.store.stores import Store

Work: TypeAlias = StoreOps | Fetch | MakeBackup | StopBackup
"""What the core asks of the store; it makes one backup at a time."""


class _Stopped(Exception):
    """The client that has asked for the backup is gone."""


async def back_up_between_rounds(
    handle: Handle, store: Store, action: MakeBackup, work: trio.MemoryReceiveChannel[Work]
) -> None:
    """Make a backup and post its result; serve `work` between two slices of it."""

    def between() -> None:
        trio.from_thread.check_cancelled()
        actions = trio.from_thread.run_sync(waiting_in, work)
        for result in [execute_timed(store, each) for each in rounds_of(actions)]:
            trio.from_thread.run_sync(handle.post, result)
        if any(isinstance(each, StopBackup) for each in actions):
            raise _Stopped

    def make() -> BackedUp:
        try:
            return back_up(store, action, between)
        except _Stopped:
            return BackedUp(Errno.ECANCELED, "the client that has asked for the backup is gone")

    handle.post(await OWN.run(make))


def waiting_in(work: trio.MemoryReceiveChannel[Work]) -> list[Work]:
    """Return the work that is in the channel now."""
    return [work.receive_nowait() for _ in range(work.statistics().current_buffer_used)]


def rounds_of(actions: list[Work]) -> list[StoreOps | Fetch]:
    return [each for each in actions if isinstance(each, StoreOps | Fetch)]
