"""The processes of this machine, as proc(5) shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def process_ids() -> Iterator[int]:
    """Yield the id of each process; it may have ended meanwhile.

    Files of a process are not looked for here: one that is just ending makes that an error (ESRCH).
    """
    return (int(path.name) for path in PROC.iterdir() if path.name.isdecimal())
