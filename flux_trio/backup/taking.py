"""Making a backup: first the files of jobs, then the state, at last the mark.

In this order, a job that ends meanwhile has its end in the state, and a job that starts meanwhile
is one that the shell host of a restored directory does not know, so that it does not start it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.backup.files import (
    check_room,
    copy_file,
    copy_tree,
    make_directory,
    naming_files,
    remove_made,
    size_of,
    sync_directory,
    write_file,
)
from flux_trio.backup.mark import Mark
from flux_trio.client import BACKUP_FILE
from flux_trio.shell.job import STATUS_LOST
from flux_trio.shell.protocol import JOBS_NAME
from flux_trio.shell.records import (
    RECORD_SUFFIX,
    Accepted,
    Ended,
    Failed,
    Line,
    encode_record,
    read_record,
)
from flux_trio.state_directory import (
    LOG_FILES,
    PLUGINS_DIRECTORY,
    SHELL_DIRECTORY,
    STATE_FILE,
    TOKENS_FILE,
)

PLAIN_FILES: Final = (TOKENS_FILE, *LOG_FILES)


class Draft:
    """A backup of `statedir` in the making; its methods raise BackupError and may wait for a disk.

    `begin`, then a copy of the state at `state`, then `finish`; or `undo`, which leaves nothing.
    """

    def __init__(self, statedir: Path, directory: Path) -> None:
        self._statedir = statedir
        self._directory = directory
        self._was_there = False
        self.state = directory / STATE_FILE

    def begin(self) -> None:
        """Make the directory, and copy all files but the state. Leaves nothing if it fails."""
        self._was_there = not make_directory(self._directory)
        try:
            with naming_files():
                check_room(self._directory, self._needed())
                self._copy_files()
        except BaseException:
            self.undo()
            raise

    def finish(self, mark: Mark) -> int:
        """Write the mark; return the size of the backup in bytes."""
        with naming_files():
            write_file(self._directory / BACKUP_FILE, msgspec.json.encode(mark))
            sync_directory(self._directory)
            return sum(size_of(path) for path in self._directory.rglob("*") if path.is_file())

    def undo(self) -> None:
        """Remove what was made."""
        remove_made(self._directory, was_there=self._was_there)

    @property
    def _jobs(self) -> Path:
        return self._statedir / SHELL_DIRECTORY / JOBS_NAME

    def _needed(self) -> int:
        state = [self._statedir / STATE_FILE, self._statedir / f"{STATE_FILE}-wal"]
        jobs = self._jobs.iterdir() if self._jobs.is_dir() else ()
        return sum(map(size_of, [*state, *jobs]))

    def _copy_files(self) -> None:
        for name in PLAIN_FILES:
            copy_file(self._statedir / name, self._directory / name)
        plugins = self._statedir / PLUGINS_DIRECTORY
        if plugins.is_dir():
            copy_tree(plugins, self._directory / PLUGINS_DIRECTORY)
        if self._jobs.is_dir():
            self._copy_jobs()

    def _copy_jobs(self) -> None:
        target = self._directory / SHELL_DIRECTORY / JOBS_NAME
        target.mkdir(mode=0o700, parents=True)
        for path in sorted(self._jobs.iterdir()):
            if path.suffix != RECORD_SUFFIX:
                copy_file(path, target / path.name)
                continue
            try:
                lines = read_record(path)
            except FileNotFoundError:
                continue  # the job's end is stored
            write_file(target / path.name, encode_record(without_processes(lines)))


def without_processes(lines: Iterable[Line]) -> list[Line]:
    """Return the record of a job whose processes belong to another shell host.

    It names no process and no control group, so that no shell host that reads it can signal those
    of the original. The end of a task that runs is not known.
    """
    lines = list(lines)
    ntasks = next((line.ntasks for line in lines if isinstance(line, Accepted)), 1)
    kept: list[Line] = [Accepted(ntasks)]
    kept += [line for line in lines if isinstance(line, Failed | Ended)]
    has_failed = any(isinstance(line, Failed) for line in lines)
    known = {line.taskid for line in lines if isinstance(line, Failed | Ended)}
    launched = {line.taskid for line in lines if not isinstance(line, Accepted)}
    running = launched - known if has_failed else set(range(ntasks)) - known
    return [*kept, *(Ended(taskid, STATUS_LOST) for taskid in sorted(running))]
