"""What is done to the state directory of a killed instance before the next one starts from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from flux_trio._version import __version__
from flux_trio.messages import Errno
from flux_trio.store.backup.files import Mark
from flux_trio.store.backup.restoring import restore
from flux_trio.store.backup.taking import take
from flux_trio.store.fsck import check_file, repair_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import StoreError

Tool = Literal["nothing", "repair", "restore"]
"""`flux-trio fsck --repair`, or a backup and `flux-trio restore` of it; or nothing."""


class Remains:
    """The files of a state directory, and of the backup of it that was being made or is there, as
    they were when the instance was killed.

    The backup is restored if it `is_latest`: nothing was stored since it was complete.
    """

    def __init__(
        self, statedir: Path, tool: Tool, now: float, backup: Path, *, is_latest: bool
    ) -> None:
        self._tool: Tool = tool
        self._now = now
        self._latest = backup if is_latest else None
        there = [each for each in (statedir, backup) if each.is_dir()]
        self._files = {each: _files_in(each) for each in there}

    def put_back(self, statedir: Path) -> Path:
        """Write the files again, let the tool work, and return the directory to start from.

        Raises FluxError if the tool fails.
        """
        for directory, files in self._files.items():
            directory.mkdir(mode=0o700, exist_ok=True)
            for path in directory.iterdir():
                if path not in files:
                    path.unlink()
            for path, data in files.items():
                path.write_bytes(data)
        return _TOOLS[self._tool](statedir, self._now, self._latest)


def _files_in(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def _repair(statedir: Path, _now: float, _backup: Path | None) -> Path:
    """Repair the state file; what is left has no damage."""
    repair_file(statedir / STATE_FILE)
    found = check_file(statedir / STATE_FILE)
    if found.damage:
        raise StoreError(Errno.EIO, f"after a repair: {found.damage[0]}")
    return statedir


def _restore(statedir: Path, now: float, backup: Path | None) -> Path:
    """Restore a backup into a new directory; make it before if there is none."""
    made, restored = (statedir.with_name(f"{statedir.name}{end}") for end in ("b", "r"))

    def copy_state(path: Path) -> None:
        store = SqliteStore(statedir / STATE_FILE)
        try:
            store.backup(path, lambda: None)
        finally:
            store.close()

    if backup is None:
        take(statedir, made, Mark(str(statedir), now, __version__), copy_state)
    restore(backup or made, restored, now)
    return restored


_TOOLS: Final[dict[Tool, Callable[[Path, float, Path | None], Path]]] = {
    "nothing": lambda statedir, _now, _backup: statedir,
    "repair": _repair,
    "restore": _restore,
}
