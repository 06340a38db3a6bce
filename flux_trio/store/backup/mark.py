"""The mark of a complete backup: a file that is written last."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flux_trio.client import BACKUP_FILE
from flux_trio.formats import FormatError
from flux_trio.messages import Errno
from flux_trio.store.backup.files import BackupError


class Mark(msgspec.Struct, frozen=True):
    """Of which state directory the backup is, and of when, in seconds since the Unix epoch."""

    statedir: str
    time: float
    version: str  # of flux-trio


def read_mark(backup: Path) -> Mark:
    """Return the mark of a backup. Raises BackupError if the directory is no complete backup."""
    path = backup / BACKUP_FILE
    try:
        if data := path.read_bytes():
            return msgspec.json.decode(data, type=Mark)
        text = f"{backup}: not a complete backup: its {BACKUP_FILE} is empty"
        raise BackupError(Errno.EINVAL, text)
    except (FileNotFoundError, NotADirectoryError):
        text = f"{backup}: not a complete backup: there is no {BACKUP_FILE} in it"
        raise BackupError(Errno.ENOENT, text) from None
    except msgspec.DecodeError as error:
        raise BackupError(Errno.EINVAL, str(FormatError.of_msgspec(error).at(str(path)))) from None
