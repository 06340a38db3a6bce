"""The number of the last acknowledged change, in a small file beside the state file.

SQLite takes a damaged or cut write-ahead log for one whose last commit was torn, and drops what
follows without a word. So the number is kept outside both files. It is written after SQLite has
committed and before the commit is acknowledged: a process that is killed in between leaves a number
that is too low, never one that is too high. The file is never synchronized: SIGKILL does not need
it, and after a loss of power too low a number does no harm.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LINE = re.compile(r"(\d{20}) (\S+) +([0-9a-f]{8})\n")
_BYTES_MAX: Final = 256


def acknowledged_path(path: Path) -> Path:
    """Beside the state file `path`, the file with the number of its last acknowledged change."""
    return path.with_name(f"{path.name}-acknowledged")


class AcknowledgedFile:
    """The file at `path`, made if it is not there. Raises OSError, as `write` does.

    `number` is what was last written, None if the file was not there or is damaged. `same_boot`
    tells whether that was since the machine was started.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._boot = _boot_id()
        self.number, boot = _parsed(os.pread(self._fd, _BYTES_MAX, 0))
        self.same_boot = boot == self._boot

    def write(self, number: int) -> None:
        """Every change up to `number` is committed and may be acknowledged."""
        os.pwrite(self._fd, _line(number, self._boot), 0)  # one page: SIGKILL does not tear it
        self.number = number

    def close(self) -> None:
        os.close(self._fd)


def acknowledged_number(path: Path) -> int | None:
    """What the file at `path` has, without making it; None if it is not there or is damaged."""
    try:
        return _parsed(path.read_bytes())[0]
    except FileNotFoundError:
        return None


def _line(number: int, boot: str) -> bytes:
    content = f"{number:020d} {boot:<36}"  # as long as a UUID: all lines have one length
    return f"{content} {zlib.crc32(content.encode()):08x}\n".encode()


def _parsed(content: bytes) -> tuple[int | None, str]:
    found = _LINE.fullmatch(content.decode("latin-1"))
    if found is None or _line(int(found[1]), found[2]) != content:
        return None, ""
    return int(found[1]), found[2]


def _boot_id() -> str:
    """What the kernel calls this run of the machine."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
