"""reservation: before a maintenance window, jobs that would not finish in time are held.

    conf = {"windows": [{"start": "2026-12-01T08:00:00+00:00", "end": "2026-12-01T16:00:00+00:00",
                         "reason": "cooling"}]}

A job that would still run at `start` has priority 0, as if its user had held it, and is annotated
with the reason; a job without a duration never ends. When the window is over all get back the
priority that other plugins find. Load this plugin after the one that decides on priorities.
"""

from __future__ import annotations

import math
from datetime import datetime

import msgspec
import trio

from flux_trio import jobtap


class Window(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing is to run from `start` to `end`; both say their time zone."""

    start: datetime
    end: datetime
    reason: str = "maintenance"

    def bars(self, now: float, duration: float) -> bool:
        """Whether a job that starts `now` and takes `duration` seconds (0: no end) is in it."""
        until = now + (duration or math.inf)
        return until >= self.start.timestamp() and now < self.end.timestamp()


class Conf(msgspec.Struct, forbid_unknown_fields=True):
    """What it is loaded with."""

    windows: list[Window]


class Reservation(jobtap.Plugin):
    """Answers for priorities; asks for all of them again when time changes them."""

    name = "reservation"

    def __init__(self) -> None:
        self._windows: list[Window] = []
        self._turning = 0.0  # when the answer for some job changes, as far as is known
        self._changed = trio.Event()

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read what it was loaded with."""
        self._windows = self.read_conf(Conf).windows
        for window in self._windows:
            if window.start.tzinfo is None or window.end.tzinfo is None:
                raise jobtap.Reject("start and end need a time zone, such as +00:00")
            if window.end <= window.start:
                raise jobtap.Reject(f"{window.end} is not after {window.start}")

    def loaded(self) -> None:
        """Watch the clock."""
        self._turning = math.inf
        self.start_soon(self._watch)

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int | None:
        """0 for a job that would run into a window, else what others say."""
        now, duration = self.now(), job.jobspec.duration
        window = next((each for each in self._windows if each.bars(now, duration)), None)
        if window is not None:
            job.annotate({"reservation": {"reason": window.reason}})
            self._turn_at(window.end.timestamp())
            return jobtap.PRIORITY_MIN
        if "reservation" in job.annotations:
            job.annotate({"reservation": None})
        for each in self._windows:
            if duration and each.end.timestamp() > now:
                self._turn_at(each.start.timestamp() - duration)
        return None

    def _turn_at(self, at: float) -> None:
        """Some job's answer changes then."""
        if self.now() < at < self._turning:
            self._turning = at
            self._changed.set()

    async def _watch(self) -> None:
        while True:
            self._changed = trio.Event()
            with trio.move_on_after(max(0.0, self._turning - self.now())) as waited:
                await self._changed.wait()
            if waited.cancelled_caught:
                self._turning = math.inf
                self.reprioritize_all()
