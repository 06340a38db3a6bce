"""What is done to the state directory of a killed instance before the next one starts from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from flux_trio._version import __version__
from flux_trio.store.backup.files import Mark
from flux_trio.store.backup.restoring import restore
from flux_trio.store.backup.taking import take
from flux_trio.store.fsck import check_file, repair_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE

Tool = Literal["nothing", "repair", "restore"]
"""`flux-trio fsck --repair`, or a backup and `flux-trio restore` of it; or nothing."""


class Remains:
    """The files of a state directory as they were when its instance was killed."""

    def __init__(self, statedir: Path, tool: Tool, now: float) -> None:
        self._tool: Tool = tool
        self._now = now
        self._files = {path: path.read_bytes() for path in statedir.iterdir() if path.is_file()}

    def put_back(self, statedir: Path) -> Path:
        """Write the files again, let the tool work, and return the directory to start from."""
        for path in statedir.iterdir():
            if path not in self._files:
                path.unlink()
        for path, data in self._files.items():
            path.write_bytes(data)
        return _TOOLS[self._tool](statedir, self._now)


def _repair(statedir: Path, _now: float) -> Path:
    """Repair the state file; what is left has no damage."""
    repair_file(statedir / STATE_FILE)
    found = check_file(statedir / STATE_FILE)
    if found.damage:
        raise AssertionError(f"after a repair: {found.damage[0]}")
    return statedir


def _restore(statedir: Path, now: float) -> Path:
    """Make a backup, and restore it into a new directory."""
    backup, restored = (statedir.with_name(f"{statedir.name}{end}") for end in ("b", "r"))

    def copy_state(path: Path) -> None:
        store = SqliteStore(statedir / STATE_FILE)
        try:
            store.backup(path, lambda: None)
        finally:
            store.close()

    take(statedir, backup, Mark(str(statedir), now, __version__), copy_state)
    restore(backup, restored, now)
    return restored


_TOOLS: Final[dict[Tool, Callable[[Path, float], Path]]] = {
    "nothing": lambda statedir, _now: statedir,
    "repair": _repair,
    "restore": _restore,
}
