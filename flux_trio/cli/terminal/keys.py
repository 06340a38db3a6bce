"""Keys of a screen that updates."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio

KEY_BYTES_MAX: Final = 16  # of one key, such as an arrow


@contextmanager
def keys() -> Iterator[None]:
    """Set the terminal so that each key is read at once and is not echoed."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


async def read_key(wait_s: float) -> str:
    """Return the next key; "" if none is pressed in time, "q" at the end of standard input."""
    terminal = sys.stdin.fileno()
    with anyio.move_on_after(wait_s):
        await anyio.wait_readable(terminal)
        return os.read(terminal, KEY_BYTES_MAX).decode(errors="replace") or "q"
    return ""
