"""The kvs service: `KvsCore` under Trio, with a store that may wait for a disk.

A store that waits works on a thread, one call at a time, so that the instance goes on meanwhile.
The thread that makes a backup also does the rounds that come meanwhile.

Between calls the store is maintained in small slices: it does the work that commits have put off,
and gives free pages back. A sweep reads every value, so that damage is found early, while a copy of
the value may still exist. A commit waits for at most one slice, about a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
import trio

from flux_trio.broker import Handle
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import (
    BackedUp,
    Damaged,
    DiskFree,
    Fetch,
    Fetched,
    KvsTimer,
    MakeBackup,
    StopBackup,
    StoreAction,
    Stored,
    StoreInput,
    StoreOps,
)
from flux_trio.cores.pages import page_size
from flux_trio.cores.turns import Core
from flux_trio.editions import CLASSIC, Edition
from flux_trio.messages import Level, topics
from flux_trio.process.threads import OWN
from flux_trio.services.at_once import KvsAtOnce
from flux_trio.services.recorded_core import make_core
from flux_trio.services.runner import run_core
from flux_trio.store.executing import STOPPED, back_up, execute_timed
from flux_trio.store.stores import Store, StoreError

CLOSE_S_MAX: Final = 10.0  # then the file is left as it is, as after SIGKILL: no data is lost
WORK_MAX: Final = 6
"""The core has one round at the store, a StoreOps and a Fetch, and one backup, which it may stop.
The stop of the backup before may still wait."""


async def run(
    handle: Handle,
    store_factory: Callable[[], Store],
    *,
    edition: Edition = CLASSIC,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `kvs.*` from the store that `store_factory` opens, until cancelled.

    Before `task_status.started()`, raises StoreError if the store cannot be opened, and
    FluxError(EEXIST) if there is a kvs already.
    """
    store = store_factory()  # it may block: no service runs before the kvs
    try:
        for service in edition.kvs.services:
            handle.register(service)
        handle.subscribe(topics.SERVICE_BACK_EVENT)
        for level, text in store.remarks:
            handle.log(level, text)
        turns = make_core(handle, KvsCore, handle.userid, edition=edition).turns
        if store.waits_for_disk:
            await _serve_from_disk(handle, store, turns, task_status)
        else:
            await run_core(handle, KvsAtOnce(store, turns), task_status=task_status)
    finally:
        await _close(handle, store)


async def _serve_from_disk(
    handle: Handle,
    store: Store,
    turns: Core[KvsTimer, StoreInput, StoreAction],
    task_status: trio.TaskStatus[None],
) -> None:
    to_store, work = trio.open_memory_channel[Work](WORK_MAX)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_store_in_order, handle, store, work)
        await run_core(handle, turns, to_store.send_nowait, task_status=task_status)
        nursery.cancel_scope.cancel()


async def _store_in_order(
    handle: Handle, store: Store, work: trio.MemoryReceiveChannel[Work]
) -> None:
    """Perform each round in one visit to the thread; maintain the store between rounds."""
    tending = Tending(trio.current_time() + TEND_AFTER_S)
    settle_at = trio.current_time() + SETTLE_AFTER_S
    told: DiskFree | None = None
    while True:
        actions: list[Work] = []
        if not work.statistics().current_buffer_used:  # rounds that wait come first
            with trio.move_on_at(min(tending.at, settle_at)):
                actions.append(await work.receive())
        actions += waiting_in(work)
        if rounds := rounds_of(actions):
            done, room = await OWN.run(perform, store, rounds)
            for result in done:
                handle.post(result)
            told = tell_free(handle, told, room)
        for action in actions:
            if isinstance(action, MakeBackup):
                await back_up_between_rounds(handle, store, action, work)
        if trio.current_time() >= settle_at or store.has_much_unsettled:
            settle_at = await OWN.run(settle, store) + trio.current_time()
        if trio.current_time() >= tending.at:
            tended = await OWN.run(tend, store, tending)
            tending = tended.then(trio.current_time())
            told = tell_free(handle, told, tended.room)
            for found in tended.damaged:
                handle.post(found)


def perform(
    store: Store, rounds: list[StoreOps | Fetch]
) -> tuple[list[Stored | Fetched], DiskFree | None]:
    """Return the result of each round, and how much of the disk is free then."""
    return [execute_timed(store, action) for action in rounds], room_of(store)


def room_of(store: Store) -> DiskFree | None:
    """Set room aside again if there is some; return how much is free."""
    is_last, free = store.keep_reserve(), store.disk_free()
    return None if free is None else DiskFree(free, is_last)


def tell_free(handle: Handle, told: DiskFree | None, room: DiskFree | None) -> DiskFree | None:
    """Tell the core how much of the disk is free if that differs much from what was told last.

    Returns what it knows then.
    """
    if room is None:
        return told
    if told is not None and told.is_last == room.is_last:
        least = max(TOLD_BYTES_MIN, told.nbytes // TOLD_PART)
        if abs(room.nbytes - told.nbytes) < least:
            return told
    handle.post(room)
    return room


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


# --- maintenance


SETTLE_AFTER_S: Final = 30.0
"""Between two times at which the store does what commits have put off. A key that changes several
times meanwhile is written once. On a damaged disk, the changes of this time are lost together."""

TEND_AFTER_S: Final = 60.0  # after the start, which has other work
SLICE_S: Final = 0.1  # between two slices: about 1 % of a core, and 600 keys a second
SWEEP_S: Final = 24 * 3600.0  # from the end of one sweep to the next
IDLE_S: Final = 10.0  # between two checks of free pages while no sweep is under way
TOLD_BYTES_MIN: Final = 1 << 20  # by which free room changes before the core is told
TOLD_PART: Final = 16  # the same, as a part of the room
PAGES_KEPT: Final = 1024  # free pages that are kept for the next commits
PAGES_MAX: Final = 256  # given back in a slice


class Tending(msgspec.Struct, frozen=True):
    """The state of the maintenance. Times are those of Trio's clock."""

    at: float  # when the next slice is due
    sweep_at: float = 0.0  # the next sweep does not begin before it
    after: str = ""  # the last key that the sweep has read, "" at its beginning


class Tended(msgspec.Struct, frozen=True):
    """The result of a slice."""

    before: Tending
    damaged: list[Damaged]
    after: str | None  # None if no sweep is under way
    free: int  # free pages
    room: DiskFree | None

    def then(self, now: float) -> Tending:
        """Return when the next slice is due, and where it begins."""
        swept = self.before.at >= self.before.sweep_at and self.after is None
        sweep_at = now + SWEEP_S if swept else self.before.sweep_at
        busy = self.after is not None or self.free > PAGES_KEPT
        return Tending(now + (SLICE_S if busy else IDLE_S), sweep_at, self.after or "")


def settle(store: Store) -> float:
    """Do some of the work that commits have put off; return seconds until the next time."""
    with suppress(StoreError):  # the disk is full; any other error comes again at a commit
        if store.settle():
            return 0.0
    return SETTLE_AFTER_S


def tend(store: Store, tending: Tending) -> Tended:
    """Do one slice."""
    try:
        free = store.reclaim(PAGES_KEPT, page_size(PAGES_MAX))
    except StoreError:  # the disk is full; any other error comes again at a commit
        free = 0
    room = room_of(store)
    if tending.at < tending.sweep_at:
        return Tended(tending, [], None, free, room)
    try:
        swept = store.sweep(tending.after)
    except StoreError as error:
        return Tended(tending, [Damaged(error.text)], None, free, room)
    return Tended(tending, swept.damaged, swept.after, free, room)


# --- what the core asks of the store


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
            return STOPPED

    handle.post(await OWN.run(make))


def waiting_in(work: trio.MemoryReceiveChannel[Work]) -> list[Work]:
    """Return the work that is in the channel now."""
    return [work.receive_nowait() for _ in range(work.statistics().current_buffer_used)]


def rounds_of(actions: list[Work]) -> list[StoreOps | Fetch]:
    return [each for each in actions if isinstance(each, StoreOps | Fetch)]
