"""Shortages of the shell host when it starts a job: processes, memory, descriptors, disk space.

If a start fails because of a shortage, the job itself is not at fault: it waits, and is started
when there is enough again.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from pathlib import Path
from typing import Final

_LACKS: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class ShortageError(Exception):
    """The host cannot start a task now; the text names the shortage."""


def is_shortage(error: OSError, own: Collection[str], command: str, *, has_limits: bool) -> bool:
    """Whether `error` is a shortage of the host, and not an error of the job.

    `own` are the host's files for the task. A full disk below a file that the job names is an error
    of the job. `has_limits` means that the job limits its tasks: then a limit may be the reason why
    `command` cannot be executed.
    """
    filename = "" if error.filename is None else str(error.filename)
    if error.errno in _NO_SPACE:
        return filename in own
    return error.errno in _LACKS and not (has_limits and filename == command)


def describe_shortage(error: OSError, own: Collection[str]) -> str:
    """Return a text that names the shortage, the same for all jobs; `own` as in `is_shortage`."""
    what = "no process can be made"
    if error.filename is not None:
        path = str(error.filename)
        place = Path(path).parent
        what = f"no file of a job can be opened in {place}" if path in own else path
    return f"{what}: {error.strerror}"
