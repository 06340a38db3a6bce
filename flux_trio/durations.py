"""Waits for a duration that includes the sleep of the machine and ignores steps of the wall clock.

Trio's clock stands still while the machine sleeps. With that clock alone, a limit of one minute
would end up to a minute after the user has opened the laptop again.
"""

from __future__ import annotations

import msgspec
import trio

from flux_trio.clock import Now, passing, wait_s_max


class Durations(msgspec.Struct, frozen=True):
    """Waits by the monotonic clock `passed`, and looks at it at least every `look_s` seconds."""

    passed: Now
    look_s: float

    @classmethod
    def of(cls, clock: Now) -> Durations:
        return cls(passing(clock), wait_s_max(clock))

    async def sleep(self, seconds: float) -> None:
        await self.wait(trio.Event(), seconds)

    async def wait(self, event: trio.Event, seconds: float) -> None:
        """Wait until `event` is set or `seconds` have passed."""
        await trio.lowlevel.checkpoint()
        end = self.passed() + seconds
        while not event.is_set() and (left := end - self.passed()) > 0:
            with trio.move_on_after(min(left, self.look_s)):
                await event.wait()
