"""Directories and files that are this user's alone, whatever the umask, and what others have put in
their place.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flux_trio.process.private import (
    PrivateDirectory,
    foreign,
    foreign_below,
    make_directory,
    open_private,
    private_directory,
    read_private,
    untrusted,
)

UMASKS = [0o000, 0o002, 0o022, 0o027, 0o077, 0o777]
NOBODY = 65534

as_root = pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.lstat().st_mode):04o}"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PrivateDirectory]:
    with private_directory(tmp_path) as directory:
        yield directory


# Modes


@pytest.mark.parametrize("mask", UMASKS)
def test_what_is_made_has_its_own_mode(
    directory: PrivateDirectory, tmp_path: Path, mask: int
) -> None:
    with umask(mask):
        os.close(directory.open("file", os.O_WRONLY | os.O_CREAT))
        directory.make("below").close()
        assert make_directory(tmp_path / "a" / "b" / "named")
    assert mode(tmp_path / "file") == "0600"
    assert mode(tmp_path / "below") == "0700"
    assert mode(tmp_path / "a" / "b" / "named") == "0700"
    assert mode(tmp_path / "a" / "b") == f"{0o755 & ~mask | 0o700:04o}"


def test_file_that_may_be_made_and_is_there_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o666)
    os.close(open_private(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    assert mode(tmp_path / "file") == "0600"


# Links


def test_no_file_or_directory_is_opened_through_a_link(
    directory: PrivateDirectory, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("another file of the user")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "way").symlink_to(tmp_path / "there")
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
        with pytest.raises(OSError, match="expected no link") as raised:
            directory.open("link", flags)
        assert raised.value.filename == f"{tmp_path}/link"
    with pytest.raises(OSError, match="expected no link"):
        read_private(tmp_path / "link")
    with pytest.raises(OSError, match="way"):
        directory.make("way")
    assert (tmp_path / "other").read_text() == "another file of the user"
    assert list((tmp_path / "there").iterdir()) == []


def test_directory_that_its_user_has_named_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "there")
    os.close(open_private(tmp_path / "way" / "file", os.O_WRONLY | os.O_CREAT))
    assert (tmp_path / "there" / "file").exists()


# Others


@pytest.mark.parametrize("others", [0o720, 0o702])
def test_directory_that_others_may_write_in_is_not_entered(
    directory: PrivateDirectory, tmp_path: Path, others: int
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below").chmod(others)
    with pytest.raises(PermissionError, match="others may write in it: chmod go-w"):
        directory.make("below")
    assert foreign(tmp_path / "below") == "others may write in it: chmod go-w"


def test_file_below_that_is_not_the_users_alone_is_named(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "a" / "file").touch()
    (top / "a" / "file").chmod(0o644)
    assert foreign_below(top) == ""
    assert (mode(top), mode(top / "a"), mode(top / "a" / "file")) == ("0700", "0700", "0600")
    (top / "a" / "link").symlink_to("file")
    assert foreign_below(top) == f"{top}/a/link: is a link: remove it"
    assert foreign_below(top, named_by_user=True) == ""
    (top / "a" / "file").chmod(0o620)
    said = f"{top}/a/file: others may write in it: chmod go-w"
    assert foreign_below(top, named_by_user=True) == said


@as_root
def test_file_of_another_user_is_named(directory: PrivateDirectory, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").touch()
    os.chown(tmp_path / "below" / "file", NOBODY, NOBODY)
    said = f"{tmp_path}/below/file: belongs to another user"
    assert foreign_below(tmp_path / "below") == said
    assert foreign_below(tmp_path / "below", named_by_user=True) == said
    os.chown(tmp_path / "below", NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="belongs to another user") as raised:
        directory.make("below")
    assert raised.value.errno == errno.EPERM


# What is executed


@pytest.fixture
def within_reach() -> Iterator[Path]:
    """A directory that all users can look into; pytest's are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def made(path: Path, mode: int = 0o644) -> Path:
    path.touch()
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o444])
def test_file_that_only_its_user_can_write_is_trusted(within_reach: Path, mode: int) -> None:
    assert untrusted(made(within_reach / "file.py", mode), imports=True) == ""


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_file_that_others_can_write_is_not_trusted(within_reach: Path, mode: int) -> None:
    file = made(within_reach / "file.py", mode)
    assert untrusted(file) == f"{file}: others may write in it: chmod go-w"
    (within_reach / "link.py").symlink_to(file)
    assert untrusted(within_reach / "link.py") == f"{file}: others may write in it: chmod go-w"


def test_file_that_others_can_replace_is_not_trusted(within_reach: Path) -> None:
    file = made(within_reach / "file.py")
    within_reach.chmod(0o777)
    said = f"{within_reach}: others may write in it: chmod go-w"
    assert untrusted(file) == said
    within_reach.chmod(0o1777)  # as in /tmp they can put others beside it, and not replace it
    assert untrusted(file) == ""
    assert untrusted(file, imports=True) == said


def test_what_others_cannot_reach_they_cannot_write(within_reach: Path) -> None:
    (within_reach / "a").mkdir()
    file = made(within_reach / "a" / "file.py", 0o666)
    (within_reach / "a").chmod(0o777)
    assert untrusted(file) != ""
    within_reach.chmod(0o700)
    assert untrusted(file) == ""


@as_root
def test_file_of_another_user_is_not_trusted(within_reach: Path) -> None:
    file = made(within_reach / "file.py")
    os.chown(file, NOBODY, NOBODY)
    assert untrusted(file) == f"{file}: belongs to another user"
    within_reach.chmod(0o700)
    assert untrusted(file) == f"{file}: belongs to another user"
    os.chown(file, 0, 0)
    os.chown(within_reach, NOBODY, NOBODY)
    assert untrusted(file) == f"{within_reach}: belongs to another user"


def test_pipe_is_what_its_user_has_made_of_it(within_reach: Path) -> None:
    os.mkfifo(within_reach / "pipe")
    (within_reach / "pipe").chmod(0o666)
    assert untrusted(within_reach / "pipe") == ""
