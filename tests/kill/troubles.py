"""What befalls an instance before it is killed: parts are killed, its disk is full or lies."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from flux_trio.store.fsck import check_file, repair_file
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import StoreError
from tests.support.shell import hosts


class Trouble(StrEnum):
    """What befalls one life."""

    NONE = "nothing else"
    HOST = "its shell host was killed"
    APART = "a module had a process of its own"
    MODULE = "a module had a process of its own, which was killed"
    FULL = "its disk was full"
    ENDING = "it was told to end before"
    BACKUP = "it was being copied"


WEIGHTS = {
    Trouble.NONE: 4,
    Trouble.HOST: 2,
    Trouble.APART: 1,
    Trouble.MODULE: 1,
    Trouble.FULL: 2,
    Trouble.ENDING: 2,
    Trouble.BACKUP: 2,
}


def draw_trouble(rng: random.Random) -> Trouble:
    """One of them."""
    (trouble,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return trouble


def kill_hosts(directory: Path) -> int:
    """SIGKILL each shell host of a state directory; how many there were."""
    found = hosts(directory / "shell")
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def repair(directory: Path) -> str:
    """Repair a state file that is whole, as an anxious operator does; nothing may be given up."""
    path = directory / STATE_FILE
    if not path.exists() or not path.stat().st_size:
        return ""
    *lost, _original = repair_file(path)
    assert not lost, lost
    return "the state file was repaired"


SMALL_BYTES = 4096
"""On a full disk what is there can be overwritten, as the number of the last commit is."""


def make_room(pid: int, *, room: bool) -> None:
    """Whether the process may make files longer: the limit stands for a full disk."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if room else SMALL_BYTES, most))


def flip_a_bit(directory: Path, rng: random.Random) -> str:
    """Flip one bit of the state; what was done, "" where there is no state.

    If the check of the file finds it, the state is put back as it was. If it does not, the next
    life goes on with the flipped bit, and must have lost nothing.
    """
    files = [path for path in directory.glob(f"{STATE_FILE}*") if path.is_file()]
    targets = sorted(path for path in files if path.stat().st_size and _is_sqlites(path))
    if not targets:
        return ""
    with _kept(files) as put_back:
        path = rng.choice(targets)
        data = bytearray(path.read_bytes())
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            damage = check_file(directory / STATE_FILE).damage
        except StoreError as error:
            damage = [error.text]
        what = f"bit {bit} of {path.name} was flipped"
        if not damage:
            return f"{what}, which harms nothing"
        put_back()
        return f"{what}, which was found ({damage[0]}) and put right"


def _is_sqlites(path: Path) -> bool:
    """The database or its write-ahead log."""
    return path.name in (STATE_FILE, f"{STATE_FILE}-wal")


class _Copies:
    def __init__(self, files: list[Path], directory: Path) -> None:
        self._files = files
        self._directory = directory
        for path in files:
            shutil.copy2(path, directory / path.name)

    def __call__(self) -> None:
        """Put the files back as they were."""
        for path in self._files:
            for stale in path.parent.glob(f"{STATE_FILE}*"):
                if stale.is_file() and stale not in self._files:
                    stale.unlink()
            shutil.copy2(self._directory / path.name, path)


@contextmanager
def _kept(files: list[Path]) -> Iterator[_Copies]:
    directory = files[0].parent / "before-the-flip"
    directory.mkdir()
    try:
        yield _Copies(files, directory)
    finally:
        shutil.rmtree(directory)
