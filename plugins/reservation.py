"""reservation: before a maintenance window, jobs that would not finish in time are held.

    conf = {"windows": [{"start": "2026-12-01T08:00:00+00:00", "end": "2026-12-01T16:00:00+00:00",
                         "reason": "cooling"}]}

A job that would still run at `start` has priority 0, as if its user had held it, and is annotated
with the reason. A job without a duration never ends. After the window, each job gets the priority
of the other plugins again. Load this plugin after the plugin that sets priorities.
"""

from __future__ import annotations

import math
from datetime import datetime

import msgspec
import trio

from flux_trio import jobtap


class Window(msgspec.Struct, forbid_unknown_fields=True):
    """No job may run from `start` to `end`; both have a time zone."""

    start: datetime
    end: datetime
    reason: str = "maintenance"

    def bars(self, now: float, duration: float) -> bool:
        """Whether a job that starts `now` and takes `duration` seconds (0: no end) meets it."""
        until = now + (duration or math.inf)
        return until >= self.start.timestamp() and now < self.end.timestamp()


class Conf(msgspec.Struct, forbid_unknown_fields=True):
    """The plugin's conf."""

    windows: list[Window]


class Reservation(jobtap.Plugin):
    """Sets priorities, and reprioritizes all jobs when time changes them."""

    name = "reservation"

    def __init__(self) -> None:
        self._windows: list[Window] = []
        self._turning = 0.0  # the next known time at which a job's priority changes
        self._changed = trio.Event()

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read the conf."""
        self._windows = self.read_conf(Conf).windows
        for window in self._windows:
            if window.start.tzinfo is None or window.end.tzinfo is None:
                raise jobtap.Reject("start and end need a time zone, such as +00:00")
            if window.end <= window.start:
                raise jobtap.Reject(f"{window.end} is not after {window.start}")

    def loaded(self) -> None:
        """Start the task that waits for the next change."""
        self._turning = math.inf
        self.start_soon(self._watch)

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int | None:
        """Return 0 for a job that would run into a window, else None: other plugins decide."""
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
        """Reprioritize at `at`, unless an earlier time is set."""
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
