"""A cancel at each step of something: what it held must be given back, wherever it was met."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Awaitable, Callable

import trio

from tests.support.leaks import children, descriptors


class _Steps(trio.abc.Instrument):
    """Cancels `scope` before the step of that number; the steps of all tasks count."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self._scope = scope
        self._left = number

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


async def cancel_at_each_step(
    run: Callable[[], Awaitable[object]], check: Callable[[], None]
) -> int:
    """Run `run` again and again, cancelled one step later each time, until it ends by itself.

    After each of them `check` is called. Returns in how many steps `run` was cancelled.
    """
    for number in itertools.count(1):
        with trio.CancelScope() as scope:
            steps = _Steps(scope, number)
            trio.lowlevel.add_instrument(steps)
            try:
                await run()
            finally:
                trio.lowlevel.remove_instrument(steps)
        check()
        if not scope.cancelled_caught:
            return number - 1
    raise AssertionError("count() ended")


async def nothing_left_wherever_cancelled(run: Callable[[], Awaitable[object]]) -> int:
    """Cancel `run` at each of its steps: no descriptor and no child process may be left.

    It is run once before, for what is made only once. Returns in how many steps it was cancelled.
    """
    await run()
    gc.collect()
    before, nchildren = set(descriptors()), children()

    def check() -> None:
        gc.collect()
        assert set(descriptors()) <= before
        assert children() <= nchildren

    return await cancel_at_each_step(run, check)
