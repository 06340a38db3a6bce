"""The loop that runs a core under Trio: receive inputs, hand them over, perform the actions."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, Never, TypeVar, assert_never, overload

import trio

from flux_trio.broker import Handle, ServiceExit
from flux_trio.clock import Steps, wait_s_max
from flux_trio.cores.turns import (
    ClearTimer,
    ClockStepped,
    CommonAction,
    Core,
    Exit,
    KeyT,
    Log,
    Note,
    NoteAll,
    RunnerAction,
    SetTimer,
    TimerFired,
)
from flux_trio.messages import Event, Request, Response

InputT = TypeVar("InputT")
ActionT = TypeVar("ActionT")

STALE_MAX: Final = 64  # outdated entries that the heap may have beyond the number of timers


class Timers(Generic[KeyT]):
    """The timers of a core: at most one for a key, fired in order of time.

    `at` has those that are set, with the time of each and its place in the order of setting.
    """

    def __init__(self, at: Mapping[KeyT, tuple[float, int]] = {}) -> None:
        self.at = dict(at)
        self._count = max((count for _, count in at.values()), default=0)
        self._rebuild()

    def set(self, key: KeyT, at: float) -> None:
        """Fire `key` at `at`; this replaces an earlier time."""
        self._count += 1
        self.at[key] = (at, self._count)
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 2 * len(self.at) + STALE_MAX:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(*order, each) for each, order in self.at.items()]
        heapq.heapify(self._heap)

    def clear(self, key: KeyT) -> None:
        """Do not fire `key`."""
        self.at.pop(key, None)

    def next_at(self) -> float | None:
        """Return when the next timer fires; None if no timer is set."""
        while self._heap:
            at, count, key = self._heap[0]
            if self.at.get(key) == (at, count):
                return at
            heapq.heappop(self._heap)  # cleared, or set again
        return None

    def pop_due(self, now: float) -> list[TimerFired[KeyT]]:
        """Remove and return the timers whose time has come, the earliest first."""
        due = []
        while (at := self.next_at()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self.at[key]
            due.append(TimerFired(key))
        return due


def no_other_actions(action: object) -> None:
    """Reject an action: the `perform` of a core that has no actions of its own in this service."""
    raise TypeError(f"expected an action of this service, got {action!r}")


class _Start:
    """Reports that a core has started, once it `is_ready`."""

    def __init__(self, is_ready: Callable[[], bool], status: trio.TaskStatus[None]) -> None:
        self._is_ready = is_ready
        self._status: trio.TaskStatus[None] | None = status

    def look(self) -> None:
        if self._status is not None and self._is_ready():
            self._status.started()
            self._status = None


@overload
async def run_core(
    handle: Handle, core: Core[KeyT, InputT, Never], *, task_status: trio.TaskStatus[None] = ...
) -> None: ...


@overload
async def run_core(
    handle: Handle,
    core: Core[KeyT, InputT, ActionT],
    perform: Callable[[ActionT], None],
    *,
    is_ready: Callable[[], bool] = ...,
    task_status: trio.TaskStatus[None] = ...,
) -> None: ...


async def run_core(
    handle: Handle,
    core: Core[KeyT, InputT, ActionT],
    perform: Callable[[ActionT], None] = no_other_actions,
    *,
    is_ready: Callable[[], bool] = lambda: True,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run `core` until cancelled, or until its action Exit (raises ServiceExit with the reason).

    It has started once `is_ready` says so after a turn; an action Exit until then is an error of
    the start. Timers that are due get a turn of their own, after the turn of the waiting messages.

    `perform` takes the core's own actions; it must not block, and rejects others
    (`no_other_actions`). Their results come back through `handle.post`.
    """
    core = handle.adopt(core)
    timers: Timers[KeyT] = Timers()  # by Trio's clock, which cannot be set
    steps = Steps(handle.now)

    def do(actions: Sequence[CommonAction[KeyT] | ActionT], ahead: float) -> None:
        for action in actions:
            if isinstance(action, (Request, Response, Event)):
                handle.send(action)
            elif isinstance(action, (SetTimer, ClearTimer, Log, Note, NoteAll, Exit)):
                _do_common(handle, timers, ahead, action)
            else:
                perform(action)

    ahead = steps.ahead()
    do(core.start(handle.now()), ahead)
    start = _Start(is_ready, task_status)
    while True:
        start.look()
        at = timers.next_at()
        passed = -math.inf
        if at is None:
            inputs = await handle.receive()
        else:
            left_s = max(0.0, at - handle.passed())
            wait_s = min(left_s, wait_s_max(handle.now))
            inputs = await handle.receive_for(wait_s)
            if not inputs and wait_s == left_s:
                # due by Trio's clock; on the other clock it may be just before `at`, by rounding
                passed = at
        by = steps.found()
        # The actions go by this, too: somebody may set the wall clock while they are performed.
        now, ahead = handle.now(), steps.ahead()
        if at is not None:
            passed = max(passed, handle.passed())
            now = now if inputs else max(now, passed + ahead)
        if by:
            inputs.insert(0, ClockStepped(by))
        if inputs:
            do(core.turn(now, inputs), ahead)
        # only now, since an input may have cleared a timer that is due, or set it again
        if at is not None and (due := timers.pop_due(passed)):
            do(core.turn(now, due), ahead)


def _do_common(
    handle: Handle, timers: Timers[KeyT], ahead: float, action: RunnerAction[KeyT]
) -> None:
    """Perform an action; in the turn of it, the wall clock was `ahead` of Trio's clock."""
    match action:
        case SetTimer(key, at):
            timers.set(key, at - ahead)
        case ClearTimer(key):
            timers.clear(key)
        case Log(level, text):
            handle.log(level, text)
        case Note(kind, data):
            handle.note(kind, data)
        case NoteAll(notes):
            handle.note_all(notes)
        case Exit(reason):
            raise ServiceExit(reason)
        case _:
            assert_never(action)
