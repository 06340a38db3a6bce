"""What the shell host may lack when it starts a job: a process, memory, a descriptor, disk space.

A start that fails for such a reason says nothing about the job: the job waits, and is started when
there is enough again.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from pathlib import Path
from typing import Final

_LACKS: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class ShortageError(Exception):
    """The host cannot start a task now; the text says what it lacks."""


def is_shortage(error: OSError, own: Collection[Path], command: str, *, has_limits: bool) -> bool:
    """Whether `error` is for something that the host lacks, and is not the job's own.

    `own` are the host's files for the task. Of files that the job names itself, a full disk is the
    job's own error. `has_limits` says that the job has set limits for its tasks: then they may be
    why `command` cannot be executed.
    """
    filename = "" if error.filename is None else str(error.filename)
    if error.errno in _NO_SPACE:
        return filename in map(str, own)
    return error.errno in _LACKS and not (has_limits and filename == command)


def describe_shortage(error: OSError, own: Collection[Path]) -> str:
    """What the host lacks, for people: the same for all jobs. `own` is as in `is_shortage`."""
    what = "no process can be made"
    if error.filename is not None:
        path = Path(error.filename)
        what = f"no file of a job can be opened in {path.parent}" if path in own else str(path)
    return f"{what}: {error.strerror}"
