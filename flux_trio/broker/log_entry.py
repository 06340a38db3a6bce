"""An entry of the instance's log."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.formats import printable, shortened
from flux_trio.messages import Level

LOG_RING_SIZE: Final = 1024  # flux-core's default
TEXT_CHARS_MAX: Final = 1 << 15  # of an entry; the longest are stack traces of plugins


class LogEntry(msgspec.Struct, frozen=True):
    """One line: time (seconds since the Unix epoch), severity (0-7), party, text.

    Party and text may come from other users. The entry makes them printable, so that each entry
    stays on one line wherever it is shown, and limits their length.
    """

    t: float
    level: int
    party: str
    text: str

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "party", printable(self.party))
        msgspec.structs.force_setattr(self, "text", printable(shortened(self.text, TEXT_CHARS_MAX)))

    def __str__(self) -> str:
        return f"{self.party}.{Level(self.level).name.lower()}: {self.text}"
