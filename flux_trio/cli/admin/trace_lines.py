"""Messages of modules as text, as `flux module trace` prints them."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from typing import Any, Final

from flux_trio.cli.terminal.shown_values import local_time
from flux_trio.formats import printable

_MARKS: Final = {"request": ">", "response": "<", "event": "e"}
_UNITS: Final = ("", "K", "M", "G", "T", "P", "E")


def trace_line(traced: Mapping[str, Any], name_width: int = 0) -> str:
    """Return local time, module, direction, type, topic and size; a payload or error goes below.

    `traced` is one response of module.trace.
    """
    if "lost" in traced:
        return f"({traced['lost']} messages are missing here: they came too fast)"
    time = local_time(traced["timestamp"]).isoformat(timespec="milliseconds")
    words = [
        time,
        printable(traced["name"]).rjust(name_width),
        traced["prefix"],
        _MARKS[traced["type"]],
        printable(traced["topic"]),
        f"[{size_text(traced['payload_size'])}]",
    ]
    if traced["type"] == "response":
        words.append(_outcome(traced["errnum"]))
    return " ".join(words) + _below(traced)


def size_text(nbytes: int) -> str:
    """Return a number of bytes in units of 1024: 456, 1.5K."""
    value, unit = float(nbytes), 0
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    return f"{value:.8g}{_UNITS[unit]}"


def _outcome(errnum: int) -> str:
    return errno.errorcode.get(errnum, f"errno {errnum}") if errnum else "success"


def _below(traced: Mapping[str, Any]) -> str:
    if traced.get("errstr"):
        return f"\n{printable(traced['errstr'])}"
    return f"\n{json.dumps(traced['payload'], indent=2)}" if "payload" in traced else ""
