"""The log of `start`, as it leaves the process: lines on standard error, or the journal of systemd.

A line is text (time, `flux-trio`, module and level, text) or a JSON object. If standard error is
the journal, entries go to the journal's own socket instead, with their level and module as fields
(https://systemd.io/JOURNAL_NATIVE_PROTOCOL). An entry never delays the instance: what is not taken
at once is lost, and the next one says how many were lost.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.broker import LogEntry
from flux_trio.cli.terminal.shown_values import local_time
from flux_trio.messages import Level
from flux_trio.process.console import STDERR

JOURNAL_VARIABLE: Final = "JOURNAL_STREAM"  # systemd.exec(5): device and inode of standard error
JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
STDERR_DESCRIPTOR: Final = 2
LEVEL_OF_TERMINAL: Final = Level.ERR
LEVEL_OF_JOURNAL: Final = Level.INFO


class LogFormat(StrEnum):
    """The form of lines on standard error."""

    TEXT = "text"
    JSON = "json"


class LogOptions(msgspec.Struct, frozen=True):
    """What the user has asked for; None is the default."""

    format: LogFormat | None = None
    level: Level | None = None


@contextmanager
def open_log_sink(
    options: LogOptions, environ: Mapping[str, str], journal: Path = JOURNAL_SOCKET
) -> Iterator[Callable[[LogEntry], None]]:
    """Yield the function that writes the entries that `options` select."""
    if options.format is None and is_journal(environ):
        with closing(Journal(journal)) as opened:
            yield _selecting(options.level, LEVEL_OF_JOURNAL, opened.write)
    else:
        line = json_line if options.format is LogFormat.JSON else text_line
        yield _selecting(options.level, LEVEL_OF_TERMINAL, lambda each: STDERR.write(line(each)))


def _selecting(
    level: Level | None, default: Level, write: Callable[[LogEntry], None]
) -> Callable[[LogEntry], None]:
    """Return a function that writes the entries of `level`, else of `default`, and worse ones."""
    highest = default if level is None else level

    def sink(entry: LogEntry) -> None:
        if entry.level <= highest:
            write(entry)

    return sink


def is_journal(environ: Mapping[str, str]) -> bool:
    """Whether standard error is the stream to the journal that JOURNAL_STREAM names."""
    try:
        status = os.fstat(STDERR_DESCRIPTOR)
    except OSError:
        return False
    return environ.get(JOURNAL_VARIABLE) == f"{status.st_dev}:{status.st_ino}"


def text_line(entry: LogEntry) -> str:
    """Return an entry as a line: its local time, the program, module and level, and the text."""
    time = local_time(entry.t).astimezone().isoformat(timespec="microseconds")
    return f"{time} flux-trio {entry}"


def json_line(entry: LogEntry) -> str:
    """Return an entry as an object: `timestamp` is in seconds since the Unix epoch."""
    return msgspec.json.encode(
        {
            "timestamp": entry.t,
            "level": Level(entry.level).name.lower(),
            "module": entry.party,
            "text": entry.text,
        }
    ).decode()


class Journal:
    """Sends entries to the journal's socket at `path`; if it is gone, to standard error."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._nlost = 0

    def close(self) -> None:
        self._socket.close()

    def write(self, entry: LogEntry) -> None:
        text = entry.text
        if self._nlost:
            text = f"({self._nlost} entries were lost here) {text}"
        fields = {
            "MESSAGE": f"{entry.party}: {text}",
            "PRIORITY": str(int(entry.level)),
            "SYSLOG_IDENTIFIER": "flux-trio",
            "FLUX_TRIO_MODULE": entry.party,
            "FLUX_TRIO_TIMESTAMP": f"{entry.t:.6f}",
        }
        # no value has a newline, since the text of an entry is printable
        datagram = "".join(f"{name}={value}\n" for name, value in fields.items()).encode()
        try:
            self._socket.sendto(datagram, self._path)
        except BlockingIOError:
            self._nlost += 1
        except OSError:
            STDERR.write(text_line(entry))
        else:
            self._nlost = 0
