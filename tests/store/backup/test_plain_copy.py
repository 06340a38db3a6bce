"""A state directory that somebody has copied by other means than `flux-trio backup`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flux_trio.store.fsck import repair_file
from flux_trio.store.original import inode_path, is_copy, note_inode
from flux_trio.store.sqlite_store import SqliteStore
from tests.support.instance import flux_trio, invoked, running_instance

SIMULATED = "[exec]\nsimulate = true\n"
HELD = "--urgency=hold"


def copied(statedir: Path, to: Path) -> Path:
    # the socket is copied as a socket
    subprocess.run(["cp", "-a", statedir, to], check=True)
    return to


def contents(directory: Path) -> dict[str, bytes]:
    """The files that stay as they are if no instance has started in the directory."""
    names = ("state.sqlite", "state.sqlite-wal", "state.sqlite-acknowledged", "state.sqlite-inode")
    paths = [directory / name for name in names]
    return {path.name: path.read_bytes() for path in paths if path.exists()}


@pytest.mark.real
def test_copy_of_a_running_instance_does_not_start(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    with running_instance(state, SIMULATED) as original:
        waits = original.ok("submit", HELD, "true").strip()
        copied(state, copy)
        before = contents(copy)
        done = flux_trio("start", "--statedir", copy, "true")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"flux-trio start: ERROR: {copy} is a copy of a state directory: its state.sqlite "
            "is another file than its instances have used.\n"
            f"  The jobs in it may have run since, and would run again. `flux-trio backup "
            f"--statedir {copy} DIR`, then `flux-trio restore DIR NEW` make a directory that "
            "starts no job by itself.\n"
            "  If you have moved the directory, and no instance ran in the original since: "
            f"remove {copy}/state.sqlite-inode, and start again\n"
        )
        assert contents(copy) == before
        assert original.ok("jobs", "-n", "-o", "{id}").split() == [waits]


@pytest.mark.real
def test_copy_of_an_instance_that_has_ended_is_made_a_directory_to_start(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    with running_instance(state, SIMULATED) as original:
        waits = original.ok("submit", HELD, "true").strip()
        assert original.stop() == 0
    copied(state, copy)
    assert flux_trio("start", "--statedir", copy, "true").returncode == 1
    saved = invoked("backup", "--statedir", copy, tmp_path / "saved")
    assert (saved.returncode, saved.stderr) == (0, "")
    assert flux_trio("start", "--statedir", copy, "true").returncode == 1
    assert invoked("restore", tmp_path / "saved", tmp_path / "new").returncode == 0
    with running_instance(tmp_path / "new", SIMULATED) as new:
        assert new.ok("jobs", "-n", "-o", "{id}").split() == [waits]
        assert "Scheduling is stopped" in new.ok("queue", "status")
        new.ok("queue", "start")


@pytest.mark.real
def test_directory_that_was_moved_starts(tmp_path: Path) -> None:
    """Renamed, it is the same; copied, its owner says so by removing the note."""
    state, renamed, copy = (tmp_path / name for name in ("state", "renamed", "copy"))
    with running_instance(state, SIMULATED) as original:
        assert original.stop() == 0
    state.rename(renamed)
    assert flux_trio("start", "--statedir", renamed, "true").returncode == 0
    copied(renamed, copy)
    inode_path(copy / "state.sqlite").unlink()
    assert flux_trio("start", "--statedir", copy, "true").returncode == 0
    assert not is_copy(copy / "state.sqlite")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state file of an instance that has ended."""
    path = tmp_path / "state.sqlite"
    SqliteStore(path).close()
    note_inode(path)
    return path


def exchange(path: Path) -> None:
    """Put a copy in the place of the file, as one who copies an old one back."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def test_copy_in_the_place_of_the_original_is_a_copy(state: Path) -> None:
    assert not is_copy(state)
    exchange(state)
    assert is_copy(state)
    note_inode(state)
    assert not is_copy(state)
    assert inode_path(state).read_text() == f"{state.stat().st_ino}\n"
    assert inode_path(state).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("note", [b"", b"1", b"one\n", b"\xff\n", b"12\n34\n"])
def test_note_that_is_damaged_says_nothing(state: Path, note: bytes) -> None:
    inode_path(state).write_bytes(note)
    assert not is_copy(state)
    note_inode(state)
    exchange(state)
    assert is_copy(state)


def test_without_a_file_there_is_no_copy_and_nothing_to_note(state: Path, tmp_path: Path) -> None:
    state.unlink()
    assert not is_copy(state)
    elsewhere = tmp_path / "none" / "state.sqlite"
    note_inode(elsewhere)
    assert not elsewhere.parent.exists()


def test_repaired_file_is_as_original_as_the_damaged_one(state: Path) -> None:
    repair_file(state)
    assert not is_copy(state)
    assert state.with_name("state.sqlite-damaged").stat().st_ino != state.stat().st_ino
    exchange(state)
    repair_file(state)
    assert is_copy(state)


@pytest.mark.real
def test_note_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    inode_path(state / "state.sqlite").mkdir(parents=True)
    done = flux_trio("start", "--statedir", state, "true")
    assert (done.returncode, done.stdout) == (1, "")
    note = f"{state}/state.sqlite-inode"
    assert done.stderr == f"flux-trio start: ERROR: {note}: Is a directory\n"
