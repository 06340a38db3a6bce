"""Waiting for so much time to pass: the sleep of the machine counts, its wall clock does not.

Trio's clock stands still while the machine sleeps: it alone would make a limit of a minute end a
minute after somebody has opened the laptop again.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from flux_trio.clock import Now, passing, wait_s_max


@dataclass(frozen=True, slots=True)
class Durations:
    """Waits by `passed`, which counts seconds, and looks at it every `look_s` at least."""

    passed: Now
    look_s: float

    @classmethod
    def of(cls, clock: Now) -> Durations:
        """By what passes beside `clock`."""
        return cls(passing(clock), wait_s_max(clock))

    async def sleep(self, seconds: float) -> None:
        """Until they have passed."""
        await self.wait(trio.Event(), seconds)

    async def wait(self, event: trio.Event, seconds: float) -> None:
        """Until `event`, or until they have passed."""
        await trio.lowlevel.checkpoint()
        end = self.passed() + seconds
        while not event.is_set() and (left := end - self.passed()) > 0:
            with trio.move_on_after(min(left, self.look_s)):
                await event.wait()
