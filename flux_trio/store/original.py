"""Whether a state file is the one that its instances have used, or a copy that somebody made of it.

An instance notes the inode of its state file in a small file beside it. A copy of the directory has
the note, but its state file has another inode: on one file system, two files never have the same. A
directory that is renamed, or mounted elsewhere, keeps its inodes. File systems that number files
anew at each mount cannot hold the instance's socket either.

Left out: a copy without the note; a copy that is written into the file of the original, or that
gets its inode after it was removed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from flux_trio.process.private import open_private, read_private
from flux_trio.store.stores import unwritable

_NO_INODE: Final = 0


def inode_path(path: Path) -> Path:
    """Return the path of the note beside the state file `path`."""
    return path.with_name(f"{path.name}-inode")


def note_inode(path: Path) -> None:
    """Note that an instance uses the state file `path`, if there is one. Raises StoreError."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return  # the values are in memory
    if _noted(path) != inode:
        _note(path, inode)


def note_copy(path: Path) -> None:
    """Note that the state file `path` is a copy, whatever its inode. Raises StoreError."""
    _note(path, _NO_INODE)


def is_copy(path: Path) -> bool:
    """Return whether the note has another inode than `path`; False if either is missing."""
    noted = _noted(path)
    try:
        return noted is not None and noted != path.stat().st_ino
    except FileNotFoundError:
        return False


def _noted(path: Path) -> int | None:
    """Return the inode in the note; None if it is missing or damaged."""
    try:
        text = read_private(inode_path(path))
    except FileNotFoundError:
        return None
    digits = text.removesuffix(b"\n")
    return int(digits) if digits != text and digits.isdigit() else None


def _note(path: Path, inode: int) -> None:
    """Write the note; one that is torn by a power loss counts as missing."""
    try:
        descriptor = open_private(inode_path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(descriptor, f"{inode}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unwritable(inode_path(path), error) from error
