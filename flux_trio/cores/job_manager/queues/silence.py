"""How long a service has owed an answer. Users see it; no decision depends on it."""

from __future__ import annotations

from typing import Final

from flux_trio.cores.state import Part
from flux_trio.formats.meanings import Time

SILENCE_S_MIN: Final = 1.0
"""Seconds that an answer may take before `queue status` shows it."""


class Silence(Part):
    """The time from the first request after a service's last message to its next message."""

    since: Time | None

    def __init__(self, who: str) -> None:
        self._who = who
        self.since = None

    def asked(self, now: float) -> None:
        """Start measuring at a message to be answered, unless an answer is due already."""
        if self.since is None:
            self.since = now

    def broken(self) -> None:
        """Stop measuring: the service has sent a message, or is gone."""
        self.since = None

    def excused(self, now: float) -> None:
        """Measure from now: the service has given a reason, or withdrawn it."""
        if self.since is not None:
            self.since = now

    def clock_stepped(self, by: float) -> None:
        """Keep the length of the silence when the wall clock was set by `by` seconds."""
        if self.since is not None:
            self.since += by

    def text(self, now: float) -> str:
        """Return a text for users; "" if no answer is due."""
        silent_s = 0.0 if self.since is None else now - self.since
        if silent_s < SILENCE_S_MIN:
            return ""
        return f"{self._who} has not answered for {int(silent_s)} s"
