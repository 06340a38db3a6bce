"""Whether an instance lives in a state directory already, also where file locks do nothing.

The state file is locked, but on some file systems (NFS with `nolock`) a lock does nothing, or holds
on one host alone. So a start first asks the socket. Then it makes a note of its host and process,
which nobody else can make meanwhile; the instance removes the note at its end. A note that was left
behind counts if its process may run: it does on this host, or the host is another one. Two kernels
are told apart by their boot ids, since containers of one host have names of their own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.client import SOCKET_FILE
from flux_trio.process.private import open_private, read_private
from flux_trio.shell.job import start_time

NOTE_FILE: Final = "instance"
SOCKET_S_MAX: Final = 2.0
"""Seconds in which a socket takes a connection; one that takes longer belongs to a process."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Living(Exception):
    """An instance runs in the directory, or may run there; the text is for the user."""


class Note(msgspec.Struct, frozen=True):
    """The process of an instance; `since` is its start time in /proc, which no other one has."""

    host: str
    boot: str
    pid: int
    since: int

    @classmethod
    def of(cls, pid: int) -> Note:
        """Return the note of a process of this host."""
        boot = _BOOT_ID.read_text().strip()
        return cls(socket.gethostname(), boot, pid, start_time(pid) or 0)

    def may_live(self) -> bool:
        """Return whether its process may run."""
        here = Note.of(self.pid)
        if self.boot == here.boot:
            return self.since == here.since
        return self.host != here.host  # else the host was started anew


@contextmanager
def sole_instance(statedir: Path) -> Iterator[None]:
    """Let no other instance start in `statedir` during the block. Raises Living and OSError."""
    path = statedir / NOTE_FILE
    found = _noted(path)
    if _takes_connections(statedir / SOCKET_FILE):
        raise Living(f"{statedir}: an instance runs there{_by(found)}")
    if found is not None and found.may_live():
        raise Living(
            f"{statedir}: an instance runs there{_by(found)}, or has not ended by itself. If it is "
            f"gone, remove {path}"
        )
    path.unlink(missing_ok=True)
    try:
        descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        raise Living(f"{statedir}: another instance starts there") from None
    try:
        with suppress(OSError):  # on a full disk the file alone has to do
            os.write(descriptor, msgspec.json.encode(Note.of(os.getpid())))
        yield
    finally:
        os.close(descriptor)
        with suppress(OSError):  # the directory may be gone
            path.unlink(missing_ok=True)


def _takes_connections(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(SOCKET_S_MAX)
        try:
            asking.connect(str(path))
        except TimeoutError:
            return True
        except OSError:  # nobody listens, or the path is too long for a socket
            return False
    return True


def _noted(path: Path) -> Note | None:
    """Return the note; None if there is none, or it could not be written."""
    try:
        return msgspec.json.decode(read_private(path), type=Note)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _by(note: Note | None) -> str:
    return "" if note is None else f" (process {note.pid} of host {note.host})"
