"""The disk of a world: what is stored outlives the instance. The kvs core works on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

import msgspec

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Damaged, Fetch, Fetched, Stored, StoreOps
from flux_trio.cores.state import CorePart, Plain
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.lab.world.recovering import Remains, Tool
from flux_trio.messages import Errno
from flux_trio.store.executing import execute
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import MemoryStore, Store

StoreKind: TypeAlias = Literal["memory", "sqlite"]

DISK_TIMER: Final = ("disk",)
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
        self._ncommits = 0
        self._remains: Remains | None = None  # of a killed instance
        self.store: Store = self._open()
        self.errnum = 0  # ENOSPC or EIO: how a transaction fails
        self.delay_s = 0.0  # how long a transaction takes
        self.damaged: set[str] = set()  # keys whose values differ from what was committed
        self.torn: Callable[[], None] | None = None  # called in place of the next transaction
        self.is_stored = False  # whether the next transaction is durable before `torn` is called

    def _open(self) -> Store:
        return (
            MemoryStore() if self._statedir is None else _OfThisThread(self._statedir / STATE_FILE)
        )

    @property
    def is_file(self) -> bool:
        """Whether the values are in a file."""
        return self._statedir is not None

    def killed(self, tool: Tool, now: float) -> None:
        """Keep the files as they are; `reopen` begins with them, after `tool` has worked on them.

        A store that is closed puts right what a killed instance leaves behind.
        """
        if self._statedir is not None:
            self._remains = Remains(self._statedir, tool, now)

    def reopen(self) -> None:
        """Open the file again, as an instance does that starts from what is stored."""
        if self._statedir is not None:
            self.store.close()
            if self._remains is not None:
                self._statedir = self._remains.put_back(self._statedir)
                self._remains = None
            self.store = self._open()

    def close(self) -> None:
        """Close the store for good, and delete its file."""
        self.store.close()
        if self._directory is not None:
            self._directory.cleanup()

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

    def damage(self, what: str, nth: int) -> None:
        """Damage the value `what` of the nth stored job, if there is one."""
        keys = [key for key in self.store.dir("job") if key.endswith(f".{what}")]
        self.damaged.update(keys[nth - 1 : nth])

    def read(self, action: Fetch) -> Stored | Fetched:
        """Return the values and keys that are asked for, damaged ones as such."""
        found = execute(self.store, action)
        if not self.damaged or not isinstance(found, Fetched):
            return found
        values = [
            Damaged(f"the value of {key} is damaged", key) if key in self.damaged else value
            for key, value in zip(action.keys, found.values, strict=True)
        ]
        return msgspec.structs.replace(found, values=values)


class _OfThisThread(SqliteStore):
    """A store that is called on the loop's own thread: no other thread decides when it answers."""

    waits_for_disk = False
    _is_closed = False

    def close(self) -> None:
        """Close the file, unless it is closed: the kvs does, and so does the world."""
        if not self._is_closed:
            super().close()
        self._is_closed = True


class KvsOnDisk:
    """The kvs core on a disk; a transaction takes as long as the disk does."""

    def __init__(self, disk: Disk) -> None:
        self._core = KvsCore()
        self._disk = disk
        self._round: list[StoreOps | Fetch] = []  # what waits for the disk, in order
        self.start = self._core.start

    @property
    def part(self) -> CorePart:
        """The core itself, without the disk."""
        return self._core

    def dump(self) -> Plain:
        """Return the state of the core."""
        return self._core.dump()

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        """Take a turn; while the disk works on a transaction, what comes later waits behind it."""
        actions: list[Any] = []
        inputs = [done for each in inputs for done in self._through(each)]
        while inputs:
            todo, inputs = self._core.turn(now, inputs), []
            for action in todo:
                if type(action) is StoreOps or type(action) is Fetch:
                    inputs += self._do(now, action, actions)
                else:
                    actions.append(action)
        return actions

    def _through(self, item: Any) -> list[Any]:
        """Return what the core gets: for the disk's timer the results of the round."""
        if type(item) is not TimerFired or item.key != DISK_TIMER:
            return [item]
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
