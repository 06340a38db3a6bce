"""Restoring a backup: a state directory in which no job of the backup starts a second time.

The original may run on, or may have run on after the backup. So in the restored directory

- a job that had resources gets a fatal exception: its processes, if any, are the original's;
- all queues are stopped, with the reason: jobs that waited may have run since. They start when an
  administrator starts the queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.client import BACKUP_FILE
from flux_trio.cores.job_index import ACTIVE, jobid_in
from flux_trio.cores.job_manager.queues.queues import CHECKPOINT_KEY
from flux_trio.cores.kvs.ops import Append, Op, Page, Put
from flux_trio.cores.pages import page_size
from flux_trio.cores.stored_jobs import fold_eventlog
from flux_trio.editions import rfc21
from flux_trio.editions.rfc33 import read_checkpoint, write_checkpoint
from flux_trio.formats import (
    EVENTLOG,
    Event,
    FormatError,
    Jobspec,
    format_event,
    job_key,
    parse_jobspec,
)
from flux_trio.messages import Errno
from flux_trio.process.private import foreign_below
from flux_trio.protocols import Job, JobEvent, JobState
from flux_trio.store.backup.files import (
    BackupError,
    Mark,
    check_room,
    copy_tree,
    naming_files,
    new_directory,
    read_mark,
    sync_directory,
)
from flux_trio.store.room import size_of
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import Store, StoreError

PAGE_JOBS: Final = 1000
EXCEPTION: Final = "restore"  # type of the exception of jobs that had resources
BYPASS: Final = "alloc-bypass"


class Restored(msgspec.Struct, frozen=True):
    """How many active jobs were ended, because they had resources, and how many wait."""

    mark: Mark
    ended: int
    waiting: int


def restore(backup: Path, statedir: Path, now: float) -> Restored:
    """Make `statedir` from `backup`; it must not be there, or be empty.

    `now` is in seconds since the Unix epoch. Raises BackupError and StoreError; then nothing is
    left of it. Until all is durable, no instance starts in `statedir`.
    """
    with naming_files():
        found = foreign_below(backup.resolve(), named_by_user=True)
    if found:  # it has plugins, and jobs that would run as this user
        raise BackupError(Errno.EPERM, found)
    mark = read_mark(backup)
    state = backup / STATE_FILE
    if not state.exists():
        raise BackupError(Errno.ENOENT, f"{state}: no such file")
    with new_directory(statedir, backup) as claim:
        check_room(statedir, sum(map(size_of, backup.rglob("*"))))
        copy_tree(backup, statedir, without=(BACKUP_FILE,))
        restored = _hold_jobs(statedir / STATE_FILE, mark, now)
        sync_directory(statedir)
        claim.unlink()
        sync_directory(statedir)
    return restored


def _hold_jobs(path: Path, mark: Mark, now: float) -> Restored:
    store = SqliteStore(path, "full")
    try:
        date = datetime.fromtimestamp(mark.time, UTC).isoformat(timespec="seconds")
        note = f"this is a copy of {mark.statedir} as of {date}, when the job had resources"
        ops: list[Op] = []  # one commit: each one waits for the disk
        waiting = 0
        for jobid, eventlog, jobspec in _active_jobs(store):
            event = ending_event(jobid, eventlog, jobspec, note, now)
            if event is None:
                waiting += 1
            else:
                ops.append(Append(job_key(jobid, EVENTLOG), event))
        reason = (
            f"this is a copy of {mark.statedir} as of {date}: jobs may have run there since; "
            "cancel those, then `flux-trio queue start --all`"
        )
        checkpoint = stopped_checkpoint(_text(store, CHECKPOINT_KEY), reason)
        store.commit([*ops, Put(CHECKPOINT_KEY, checkpoint)])
    finally:
        store.close()
    return Restored(mark, len(ops), waiting)


def _active_jobs(store: Store) -> Iterator[tuple[int, str, str]]:
    """Yield each active job: its id, eventlog and jobspec."""
    after = ""
    while keys := store.page(Page(ACTIVE, page_size(PAGE_JOBS), after, values=False)).keys:
        for jobid in map(jobid_in, keys):
            eventlog = _text(store, job_key(jobid, EVENTLOG))
            if eventlog is not None:
                yield jobid, eventlog, _text(store, job_key(jobid, "jobspec")) or ""
        after = keys[-1]


def _text(store: Store, key: str) -> str | None:
    (value,) = store.lookup([key])
    if value is None or isinstance(value, str):
        return value
    raise StoreError(Errno.EBADMSG, f"{value.text}: repair the backup by `flux-trio fsck --repair`")


def ending_event(jobid: int, eventlog: str, jobspec: str, note: str, now: float) -> str | None:
    """Return the event that ends a job which has resources; None for a job that waits for them.

    A job that the plugin alloc-bypass gives resources waits for no queue, so it ends as well. `now`
    is in seconds since the Unix epoch. Raises FluxError(EBADMSG) if the eventlog cannot be read.
    """
    job, events = fold_eventlog(Job, jobid, eventlog)
    if job.state is not JobState.RUN and not (job.is_active and _bypasses(jobspec)):
        return None
    raised = rfc21.Exceptional(EXCEPTION, rfc21.SEVERITY_FATAL, note)
    at = max(now, events[-1].timestamp)
    return format_event(Event(at, JobEvent.EXCEPTION, rfc21.write(raised)))


def _bypasses(jobspec: str) -> bool:
    try:
        parsed: Jobspec = parse_jobspec(jobspec.encode())
    except FormatError:
        return False
    return parsed.attribute(f"system.{BYPASS}") is not None


def stopped_checkpoint(text: str | None, reason: str) -> str:
    """Return a checkpoint in which all queues are stopped, also those that are not in `text`."""
    try:
        queues = [] if text is None else read_checkpoint(text).queues
    except msgspec.MsgspecError:
        queues = []
    return write_checkpoint(queues, reason)
