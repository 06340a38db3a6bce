"""Making a backup: first the files of jobs, then the state, at last the mark.

In this order, a job that ends meanwhile has its end in the state, and a job that starts meanwhile
is one that the shell host of a restored directory does not know, so that it does not start it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.jobtap.loading import PLUGINS_DIRECTORY
from flux_trio.process.private import make_directory, read_private
from flux_trio.shell.job import STATUS_LOST
from flux_trio.shell.protocol import JOBS_NAME, SHELL_DIRECTORY
from flux_trio.shell.records import (
    RECORD_SUFFIX,
    Accepted,
    Ended,
    Failed,
    Launched,
    Line,
    Written,
    encode_record,
    jobid_of,
    parse_record,
)
from flux_trio.store.backup.files import (
    Mark,
    check_room,
    copy_file,
    copy_tree,
    new_directory,
    sync_directory,
    write_file,
)
from flux_trio.store.room import size_of
from flux_trio.store.state_directory import EDITION_FILE, LOG_FILES, STATE_FILE, TOKENS_FILE

PLAIN_FILES: Final = (TOKENS_FILE, EDITION_FILE, *LOG_FILES)


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
    make_directory(target.parent)
    make_directory(target)
    # Records first: after a record that says what a job has written, its output does not change.
    names = sorted(path.name for path in jobs.iterdir())
    copied = set()
    for name in names:
        jobid = jobid_of(name) if name.endswith(RECORD_SUFFIX) else None
        if jobid is not None:
            with suppress(FileNotFoundError):  # the job's end is stored
                data = read_private(jobs / name)
                write_file(target / name, _record_to_keep(jobid, data))
                copied.add(str(jobid))
    for name in names:
        if name.partition(".")[0] in copied and not name.endswith(RECORD_SUFFIX):
            copy_file(jobs / name, target / name)
    sync_directory(target)
    sync_directory(target.parent)


def _record_to_keep(jobid: int, data: bytes) -> bytes:
    """Return the record of a job for a backup; what is damaged in it stays damaged."""
    found = parse_record(jobid, data)
    rest = data[found.size :] if found.problem else b""
    return encode_record(jobid, without_processes(found.lines)) + rest


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
    launched = {line.taskid for line in lines if isinstance(line, Launched)}
    running = launched - known if has_failed else set(range(ntasks)) - known
    kept += [Ended(taskid, STATUS_LOST) for taskid in sorted(running)]
    return [*kept, *(line for line in lines if isinstance(line, Written))]
