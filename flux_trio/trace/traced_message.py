"""What flux-core's `module.trace` tells of one message, as a line of a trace and as text.

The text is that of `flux module trace --full`, with the time in UTC, as readers of it take it.
"""

from __future__ import annotations

import errno
import json
from typing import Any, Final, Literal

import msgspec

from flux_trio.formats import printable
from flux_trio.messages.codec import CONTROL, EVENT, REQUEST, RESPONSE
from flux_trio.trace.printed import TYPES, Line, date_of

_UNITS: Final = ("", "K", "M", "G", "T", "P", "E")
_NUMBERS: Final = {REQUEST: "request", RESPONSE: "response", EVENT: "event", CONTROL: "control"}
MARKS: Final = {name: mark for mark, name in TYPES.items()}


class TracedMessage(msgspec.Struct, gc=False):
    """A response of module.trace; `payload` is there if it is an object, `errstr` if an error."""

    timestamp: float
    prefix: Literal["rx", "tx"]
    name: str
    type: Literal[1, 2, 4, 8]
    topic: str
    payload_size: int
    payload: dict[str, Any] | None = None
    errnum: int = 0
    errstr: str = ""

    def line(self, number: int) -> Line:
        """Return it as the message that is told at place `number`."""
        body = self.errstr if self.errnum else _encoded(self.payload)
        kind, is_empty = _NUMBERS[self.type], self.payload_size == 0
        is_sent = self.prefix == "tx"
        return Line(
            self.timestamp,
            self.name,
            is_sent,
            kind,
            self.topic,
            is_empty,
            self.errnum,
            body,
            number,
        )

    def text(self) -> str:
        """Return it as it is printed, with a newline at its end."""
        kind = _NUMBERS[self.type]
        head = [
            date_of(self.timestamp),
            printable(self.name),
            self.prefix,
            MARKS[kind],
            printable(self.topic),
            f"[{size_text(self.payload_size)}]",
        ]
        if kind == "response":
            head.append(outcome_text(self.errnum))
        below = printable(self.errstr) if self.errnum else shown_payload(self.payload)
        return " ".join(head) + "\n" + (below and f"{below}\n")


def size_text(nbytes: int) -> str:
    """Return a number of bytes in units of 1024: 456, 1.5K."""
    value, unit = float(nbytes), 0
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    return f"{value:.8g}{_UNITS[unit]}"


def outcome_text(errnum: int) -> str:
    return errno.errorcode.get(errnum, f"errno {errnum}") if errnum else "success"


def shown_payload(payload: Any) -> str:
    """Return a payload as it is printed, nothing for none."""
    return "" if payload is None else json.dumps(payload, indent=2)


def _encoded(payload: dict[str, Any] | None) -> str:
    return "" if payload is None else msgspec.json.encode(payload).decode()
