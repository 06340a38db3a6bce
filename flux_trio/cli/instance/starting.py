"""The state directory of `start`, and the sign in it by which commands know to wait.

`start` reads its options with this module before it loads the instance itself, which takes longer.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.client import BACKUP_FILE, INSIDE_VARIABLE, STARTING_FILE, STATEDIR_VARIABLE
from flux_trio.formats import is_utf8
from flux_trio.process.private import DIRECTORY_MODE, foreign, make_directory, opener

DEFAULT_SHELL: Final = "/bin/sh"


def statedir_of_user(environ: Mapping[str, str]) -> Path | None:
    """Return the directory in FLUX_TRIO_STATEDIR if the user has set it.

    In a job, and in a command of an instance, the instance has set it to its own directory.
    """
    given = environ.get(STATEDIR_VARIABLE, "")
    return Path(given) if given and given != environ.get(INSIDE_VARIABLE) else None


def shell_of_terminal(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's shell if this process reads from a terminal in the foreground, else ().

    A process in the background must not read from its terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ()
    if os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        return ()
    return (environ.get("SHELL") or DEFAULT_SHELL,)


@contextmanager
def state_directory(given: Path | None, default: Path | None) -> Iterator[tuple[Path, bool]]:
    """Yield the directory and whether it lasts: `given`, else `default`, else a temporary one."""
    directory = given or default
    if directory is None:
        with tempfile.TemporaryDirectory(
            prefix="flux-trio-", ignore_cleanup_errors=True
        ) as temporary:  # the shell host may still write in it
            _check_name(Path(temporary))
            Path(temporary).chmod(DIRECTORY_MODE)
            yield Path(temporary), False
        return
    directory = directory.absolute()
    _check_name(directory)
    try:
        make_directory(directory)
        reason = foreign(directory.resolve())  # in /tmp any user could have created it
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror}") from None
    if given is None and directory.is_symlink():
        raise CommandError(f"{directory} is a link: remove it, or name a directory by --statedir")
    if reason:
        raise CommandError(f"{directory}: {reason}")
    if (directory / BACKUP_FILE).exists():
        text = f"{directory} is a backup: `flux-trio restore {directory} NEW` makes a copy to start"
        raise CommandError(text)
    yield directory, True


def _check_name(directory: Path) -> None:
    """Refuse a name that cannot be told to jobs, in whose environment it is text."""
    if not is_utf8(str(directory)):
        raise CommandError(
            f"{directory}: expected a state directory whose path is UTF-8: name another by "
            f"--statedir or {STATEDIR_VARIABLE}, or if it is temporary by TMPDIR"
        )


@contextmanager
def sign_of_start(statedir: Path) -> Iterator[Callable[[], None]]:
    """Show that an instance is starting in `statedir`, until the block ends or calls the result.

    The sign is a lock on a file, which the kernel takes away if this process is killed. Nothing is
    shown if another process holds the lock, or if the directory cannot be written.
    """
    with ExitStack() as shown:
        try:
            file = shown.enter_context(open(statedir / STARTING_FILE, "w", opener=opener))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            shown.close()
        yield shown.close
