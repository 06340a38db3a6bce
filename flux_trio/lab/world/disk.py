"""The disk of a world: what is stored outlives the instance. The kvs core works on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

import msgspec

from flux_trio._version import __version__
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import (
    Damaged,
    Fetch,
    Fetched,
    MakeBackup,
    StopBackup,
    Stored,
    StoreOps,
)
from flux_trio.cores.state import CorePart, Plain
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.editions import Edition
from flux_trio.lab.world.backups import Backup, Values, values_of
from flux_trio.lab.world.recovering import Remains, Tool
from flux_trio.messages import Errno
from flux_trio.store.backup import Mark, take
from flux_trio.store.executing import STOPPED, execute
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import MemoryStore, Store, StoreError

StoreKind: TypeAlias = Literal["memory", "sqlite"]

DISK_TIMER: Final = ("disk",)
BACKUP_TIMER: Final = ("backup",)
SLICE_S: Final = 1.0
"""From one slice of a backup to the next. With pages of two, the file of a world is four slices or
more."""
SETTLED_EVERY: Final = 3
"""The number of commits after which a slice of the changes is written to the tables, so that a kill
may come between two slices."""
_TEXTS: Final[dict[int, str]] = {
    Errno.ENOSPC: "the disk is full: No space left on device",
    Errno.EIO: "the disk fails: Input/output error",
}


class Disk:
    """A store, in memory or in a file of SQLite, and how the disk behaves now."""

    def __init__(self, kind: StoreKind = "memory") -> None:
        self._directory = (
            None if kind == "memory" else TemporaryDirectory(prefix="flux-trio-world-")
        )
        self._statedir = None if self._directory is None else Path(self._directory.name) / "state"
        if self._statedir is not None:
            self._statedir.mkdir(mode=0o700)
        self.backup = Backup(self._statedir and self._statedir.with_name("backup"))
        self._ncommits = 0
        self._remains: Remains | None = None  # of a killed instance
        self.store: Store = self._open()
        self.errnum = 0  # ENOSPC or EIO: how a transaction fails
        self.delay_s = 0.0  # how long a transaction takes
        self.damaged: set[str] = set()  # keys whose values differ from what was committed
        self.torn: Callable[[], None] | None = None  # called in place of the next transaction
        self.is_stored = False  # whether the next transaction is durable before `torn` is called

    def _open(self) -> Store:
        if self._statedir is None:
            return MemoryStore()
        return _OfThisThread(self._statedir / STATE_FILE, self.backup)

    @property
    def is_file(self) -> bool:
        """Whether the values are in a file."""
        return self._statedir is not None

    def killed(self, tool: Tool, now: float) -> None:
        """Keep the files as they are; `reopen` begins with them, after `tool` has worked on them.

        A store that is closed puts right what a killed instance leaves behind.
        """
        backup = self.backup
        if self._statedir is not None and backup.directory is not None:
            is_latest = backup.values is not None and backup.values == self.values()
            self._remains = Remains(
                self._statedir, tool, now, backup.directory, is_latest=is_latest
            )

    def reopen(self) -> None:
        """Open the file again, as an instance does that starts from what is stored.

        Raises FluxError if the tool that is to work on the file before fails. The next call does
        without it.
        """
        if self._statedir is not None:
            self.store.close()
            remains, self._remains = self._remains, None
            if remains is not None:
                self._statedir = remains.put_back(self._statedir)
            self.store = self._open()

    def close(self) -> None:
        """Close the store for good, and delete its file."""
        self.store.close()
        if self._directory is not None:
            self._directory.cleanup()

    def without_directory(self, text: str) -> str:
        """Return a text whose paths begin in the world's own directory: its name is another one
        each time.
        """
        return text if self._directory is None else text.replace(f"{self._directory.name}/", "")

    def values(self) -> Values:
        """Return all that is stored."""
        return values_of(self.store)

    @property
    def is_troubled(self) -> bool:
        """Whether transactions fail or take their time, or values are damaged."""
        return bool(self.errnum or self.delay_s or self.damaged)

    def write(self, action: StoreOps) -> Stored | None:
        """Perform a transaction and return its result; None if a fault ends the instance
        meanwhile.
        """
        if self.errnum:
            return Stored(self.errnum, _TEXTS[self.errnum])
        if self.torn is None:
            self.store.commit(action.ops)
            self._ncommits += 1
            if self._ncommits % SETTLED_EVERY == 0:
                self.store.settle()
            return Stored()
        if self.is_stored:
            self.store.commit(action.ops)
        torn, self.torn = self.torn, None
        torn()
        return None

    def begin_backup(self, path: str, now: float) -> None:
        """Begin a backup in slices; it is beside the state directory, whatever `path` is."""
        statedir, directory = self._statedir, self.backup.directory

        def make(between: Callable[[], None]) -> None:
            def meanwhile() -> None:
                between()
                if self.errnum:
                    raise StoreError(self.errnum, _TEXTS[self.errnum])

            def copy_state(path: Path) -> None:
                self.store.backup(path, meanwhile)

            if statedir is None or directory is None:
                copy_state(Path(path))  # the store in memory says why not
            else:
                take(statedir, directory, Mark(str(statedir), now, __version__), copy_state)

        self.backup.begin(make, self.values)

    def damage(self, what: str, nth: int) -> None:
        """Damage the value `what` of the nth stored job, if there is one."""
        keys = [key for key in self.store.dir("job") if key.endswith(f".{what}")]
        self.damaged.update(keys[nth - 1 : nth])

    def read(self, action: Fetch) -> Stored | Fetched:
        """Return the values and keys that are asked for, damaged ones as such."""
        found = execute(self.store, action)
        if not self.damaged or not isinstance(found, Fetched):
            return found
        read = zip(action.keys, found.values, strict=False)  # a long round ends before its last key
        values = [
            Damaged(f"the value of {key} is damaged", key) if key in self.damaged else value
            for key, value in read
        ]
        return msgspec.structs.replace(found, values=values)


class _OfThisThread(SqliteStore):
    """A store that is called on the loop's own thread: no other thread decides when it answers."""

    waits_for_disk = False
    _is_closed = False

    def __init__(self, path: Path, backup: Backup) -> None:
        self._backup = backup  # of this store
        super().__init__(path)

    def close(self) -> None:
        """Close the file, unless it is closed: the kvs does, and so does the world."""
        if not self._is_closed:
            self._backup.stop()
            super().close()
        self._is_closed = True


class KvsOnDisk:
    """The kvs core on a disk; a transaction takes as long as the disk does.

    A backup is made in slices, and what is asked for meanwhile is done between them.
    """

    def __init__(self, disk: Disk, edition: Edition) -> None:
        self._core = KvsCore(edition=edition)
        self._disk = disk
        self._round: list[StoreOps | Fetch] = []  # what waits for the disk, in order

    def start(self, now: float) -> list[Any]:
        """Begin; what the core reads first is there at once."""
        actions: list[Any] = []
        self._do_all(now, self._core.start(now), actions)
        return actions

    @property
    def part(self) -> CorePart:
        """The core itself, without the disk."""
        return self._core

    def dump(self) -> Plain:
        """Return the state of the core."""
        return self._core.dump()

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        """Take a turn; while the disk works on a transaction, what comes later waits behind it.

        A slice of a backup comes last: whoever is told that it is complete is told after all others
        whose commits it has.
        """
        actions: list[Any] = []
        self._settle(now, [done for each in inputs for done in self._through(each)], actions)
        is_due = any(type(each) is TimerFired and each.key == BACKUP_TIMER for each in inputs)
        if is_due and self._disk.backup.is_under_way:
            done = self._disk.backup.go_on()
            if done is None:
                actions.append(SetTimer(BACKUP_TIMER, now + SLICE_S))
            else:
                self._settle(now, [done], actions)
        return actions

    def _settle(self, now: float, inputs: Sequence[Any], actions: list[Any]) -> None:
        """Give the core inputs, and what comes of the actions that are for the disk."""
        if inputs:
            self._do_all(now, self._core.turn(now, inputs), actions)

    def _do_all(self, now: float, todo: Sequence[Any], actions: list[Any]) -> None:
        while todo:
            inputs: list[Any] = []
            for action in todo:
                if type(action) is StoreOps or type(action) is Fetch:
                    inputs += self._do(now, action, actions)
                elif type(action) is MakeBackup:
                    self._disk.begin_backup(action.path, now)
                    actions.append(SetTimer(BACKUP_TIMER, now))
                elif type(action) is StopBackup:
                    self._disk.backup.stop()
                    inputs.append(STOPPED)
                else:
                    actions.append(action)
            todo = self._core.turn(now, inputs) if inputs else ()

    def _through(self, item: Any) -> list[Any]:
        """Return what the core gets: for the disk's timer the results of the round."""
        if type(item) is not TimerFired or item.key not in (DISK_TIMER, BACKUP_TIMER):
            return [item]
        if item.key == BACKUP_TIMER:
            return []
        work, self._round = self._round, []
        return [done for each in work for done in self._result(each)]

    def _do(self, now: float, action: StoreOps | Fetch, actions: list[Any]) -> list[Any]:
        """Return the result, or nothing if the round waits for the disk."""
        if self._round:
            self._round.append(action)
            return []
        if self._disk.delay_s and isinstance(action, StoreOps):
            self._round.append(action)
            actions.append(SetTimer(DISK_TIMER, now + self._disk.delay_s))
            return []
        return self._result(action)

    def _result(self, action: StoreOps | Fetch) -> list[Stored | Fetched]:
        if isinstance(action, StoreOps):
            stored = self._disk.write(action)
            return [] if stored is None else [stored]
        return [self._disk.read(action)]
