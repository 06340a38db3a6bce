"""How long somebody who was asked has said nothing: for people to see; nothing follows from it."""

from __future__ import annotations

from typing import Final

from flux_trio.cores.state import Part
from flux_trio.formats.meanings import Time

SILENCE_S_MIN: Final = 1.0
"""An answer may take that long before anybody is told of it."""


class Silence(Part):
    """From the first message after the other's last word, until its next one."""

    since: Time | None

    def __init__(self, who: str) -> None:
        self._who = who
        self.since = None

    def asked(self, now: float) -> None:
        """A message was sent that has to be answered."""
        if self.since is None:
            self.since = now

    def broken(self) -> None:
        """The other has said something, or is gone."""
        self.since = None

    def excused(self, now: float) -> None:
        """It is said why there is no answer, or no longer: what was asked is waited for anew."""
        if self.since is not None:
            self.since = now

    def clock_stepped(self, by: float) -> None:
        """The wall clock was set by `by` seconds: the silence is as long as it was."""
        if self.since is not None:
            self.since += by

    def text(self, now: float) -> str:
        """For people; "" when nobody has to wait."""
        silent_s = 0.0 if self.since is None else now - self.since
        if silent_s < SILENCE_S_MIN:
            return ""
        return f"{self._who} has not answered for {int(silent_s)} s"
