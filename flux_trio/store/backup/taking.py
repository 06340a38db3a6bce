"""Making a backup: first the files of jobs, then the state, at last the mark.

In this order, a job that ends meanwhile has its end in the state, and a job that starts meanwhile
is one that the shell host of a restored directory does not know, so that it does not start it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.jobtap.loading import PLUGINS_DIRECTORY
from flux_trio.shell.job import STATUS_LOST
from flux_trio.shell.protocol import JOBS_NAME, SHELL_DIRECTORY
from flux_trio.shell.records import (
    RECORD_SUFFIX,
    Accepted,
    Ended,
    Failed,
    Line,
    encode_record,
    read_record,
)
from flux_trio.store.backup.files import (
    check_room,
    copy_file,
    copy_tree,
    new_directory,
    size_of,
    sync_directory,
    write_file,
)
from flux_trio.store.backup.mark import Mark
from flux_trio.store.state_directory import LOG_FILES, STATE_FILE, TOKENS_FILE

PLAIN_FILES: Final = (TOKENS_FILE, *LOG_FILES)


def take(statedir: Path, directory: Path, mark: Mark, copy_state: Callable[[Path], object]) -> int:
    """Make a backup of `statedir` in `directory`, and return its size in bytes.

    It may wait for a disk. `directory` must be empty or not exist. `copy_state` makes a durable
    copy of the state at the path that it gets. Raises BackupError, and what `copy_state` raises;
    then nothing is left of the backup.
    """
    with new_directory(directory, statedir) as claim:
        check_room(directory, _needed(statedir))
        _copy_files(statedir, directory)
        copy_state(directory / STATE_FILE)
        sync_directory(directory)  # before the mark, which says that all is there
        draft = claim.with_suffix(".new")
        write_file(draft, msgspec.json.encode(mark))
        draft.replace(claim)
        sync_directory(directory)
        return sum(size_of(path) for path in directory.rglob("*") if path.is_file())


def _needed(statedir: Path) -> int:
    state = [statedir / STATE_FILE, statedir / f"{STATE_FILE}-wal"]
    jobs = _jobs(statedir)
    return sum(map(size_of, [*state, *(jobs.iterdir() if jobs.is_dir() else ())]))


def _jobs(statedir: Path) -> Path:
    return statedir / SHELL_DIRECTORY / JOBS_NAME


def _copy_files(statedir: Path, directory: Path) -> None:
    for name in PLAIN_FILES:
        copy_file(statedir / name, directory / name)
    plugins = statedir / PLUGINS_DIRECTORY
    if plugins.is_dir():
        copy_tree(plugins, directory / PLUGINS_DIRECTORY)
    if _jobs(statedir).is_dir():
        _copy_jobs(_jobs(statedir), _jobs(directory))


def _copy_jobs(jobs: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700)
    target.mkdir(mode=0o700)
    for path in sorted(jobs.iterdir()):
        if path.suffix != RECORD_SUFFIX:
            copy_file(path, target / path.name)
            continue
        try:
            lines = read_record(path)
        except FileNotFoundError:
            continue  # the job's end is stored
        write_file(target / path.name, encode_record(without_processes(lines)))
    sync_directory(target)
    sync_directory(target.parent)


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
