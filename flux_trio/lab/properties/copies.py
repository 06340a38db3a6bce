"""A property of backups that are made while jobs start and end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flux_trio.lab.properties.property import Watcher, watching
from flux_trio.lab.properties.recovery import differences_restored, tool_after
from flux_trio.lab.world.backups import Values, values_of
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import FluxError, Response, topics
from flux_trio.store.backup import BackupError, read_mark, restore
from flux_trio.store.fsck import check_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.trace import Kind, Record

_SEND: Final[str] = Kind.SEND.value
_FAULT: Final[str] = Kind.FAULT.value
_CONFIG: Final[str] = Kind.CONFIG.value


@watching("copied")
class Copied(Watcher):
    """A backup that is answered is the store as it is at its end; there is nothing of one that
    failed, and one that a kill has interrupted is refused.

    Each is opened as an operator does, by `fsck` and a restore.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._before: Values | None = None  # when a kill interrupted a backup

    def observe(self, record: Record) -> None:
        """Look at a backup when it is answered, and at what a kill has left when the next life
        begins.
        """
        kind, message = record.kind, record.message
        if kind == _SEND:
            if type(message) is Response and message.topic in topics.BACKUPS:
                self._answered(record.party, message)
        elif kind == _FAULT:
            if self.world.disk.backup.is_under_way and tool_after(record):
                self._before = self.world.disk.values()
        elif kind == _CONFIG and self._before is not None:
            before, self._before = self._before, None
            self._look_at_the_rest(before)

    def _answered(self, party: str, response: Response) -> None:
        backup = self.world.disk.backup
        if party != topics.KVS or party in self.world.liars:
            return  # the broker answers for a kvs that is away
        if not response.errnum:
            self._compare(self.world.disk.values())
        elif not backup.is_under_way and backup.directory and backup.directory.exists():
            self.found(f"a backup failed ({response.error_text}), and something is left of it")

    def _look_at_the_rest(self, before: Values) -> None:
        """Compare what a kill has left, unless it does not count as a backup."""
        try:
            read_mark(self._directory)
        except BackupError:
            return
        self._compare(before)

    @property
    def _directory(self) -> Path:
        directory = self.world.disk.backup.directory
        assert directory is not None, "a store in memory has a backup"
        return directory

    def _compare(self, values: Values) -> None:
        for each in problems_of(self._directory, values, self.world.now):
            self.found(f"in a backup {self.world.disk.without_directory(each)}")


def problems_of(directory: Path, values: Values, now: float) -> Iterator[str]:
    """Yield what is wrong with a backup of a store that had these values."""
    restored = directory.with_name(f"{directory.name}-opened")
    try:
        yield from check_file(directory / STATE_FILE).damage
        restore(directory, restored, now)
        store = SqliteStore(restored / STATE_FILE)
        after = values_of(store)
        store.close()
        yield from differences_restored(values, after)
    except FluxError as error:
        yield error.text
    finally:
        shutil.rmtree(restored, ignore_errors=True)
