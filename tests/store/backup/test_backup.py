"""Backups of real instances, and what is restored from them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from flux_trio.formats import parse_fluid
from flux_trio.messages import Errno
from flux_trio.shell.job import STATUS_LOST
from flux_trio.shell.protocol import JOBS_NAME, SHELL_DIRECTORY
from flux_trio.shell.records import RECORD_SUFFIX, Accepted, Ended, Failed, Launched, Line
from flux_trio.store.backup import BackupError, Mark, files, restore, take
from flux_trio.store.backup.taking import without_processes
from flux_trio.store.sqlite_store import SqliteStore
from tests.support.instance import RunningInstance, flux_trio, invoked, running_instance, until

pytestmark = pytest.mark.real


def submit(instance: RunningInstance, *words: str) -> str:
    return instance.ok("submit", *words).strip()


def value(instance: RunningInstance, jobid: str, field: str) -> str:
    return instance.ok("jobs", "-n", "-o", f"{{{field}}}", jobid).strip()


def end(instance: RunningInstance, jobid: str) -> None:
    instance.ok("job", "wait-event", "-q", jobid, "clean")


def test_copy_that_runs_beside_its_original_starts_no_job_twice(tmp_path: Path) -> None:
    marks, backup, copy = tmp_path / "marks", tmp_path / "backup", tmp_path / "copy"
    marks.mkdir()
    go = tmp_path / "go"
    once = "test $FLUX_TASK_RANK = 0 && echo $$ >>"
    running = f"{once} {marks}/running; echo begun; until test -e {go}; do sleep 0.05; done"
    waiting = f"{once} {marks}/waiting; true"
    with running_instance(tmp_path / "state") as original:
        done = submit(original, "sh", "-c", "echo well")
        end(original, done)
        runs = submit(original, "-N2", "--exclusive", "sh", "-c", running)
        waits = submit(original, "-N2", "sh", "-c", waiting)
        until((marks / "running").exists)
        until(lambda: "begun" in outputs(original.statedir))
        token = original.ok("token", "--user", str(os.getuid() + 1)).strip()
        said = original.ok("backup", backup)
        assert said.startswith(f"{backup}: ")
        again = original.invoke("backup", backup)
        assert (again.exit_code, again.stderr) == (
            1, f"flux-trio backup: ERROR: {backup}: the directory is not empty\n",
        )  # fmt: skip
        checked = invoked("fsck", "--statedir", backup).stdout
        whole = (
            rf"{backup}/state.sqlite: \d+ keys, \d+ changes in the journal, "
            r"and \d+ jobs of the shell host; nothing is damaged\n"
        )
        assert re.fullmatch(whole, checked), checked
        record = backup / SHELL_DIRECTORY / JOBS_NAME / f"{parse_fluid(runs)}{RECORD_SUFFIX}"
        assert record.exists()
        restored = invoked("restore", backup, copy)
        assert restored.stdout.splitlines() == [
            f"{copy}: a copy of {original.statedir}",
            "1 jobs had resources and end, 1 jobs wait",
            "all queues are stopped: when the jobs may run, `flux-trio queue start --all`",
        ]
        with running_instance(copy) as second:
            end(second, runs)
            assert value(second, runs, "result") == "FAILED"
            assert "begun" in second.invoke("job", "attach", runs).stdout
            exceptions = second.ok("job", "eventlog", runs)
            assert f"this is a copy of {original.statedir} as of " in exceptions
            assert "its shell host was killed" not in exceptions
            assert second.ok("job", "attach", done) == "well\n"
            assert value(second, waits, "state") == "SCHED"
            assert "cancel those, then `flux-trio queue start --all`" in second.ok(
                "queue", "status"
            )
            assert token_works(second, token)
            # the original's job goes on, and then the one behind it
            assert value(original, runs, "state") == "RUN"
            go.touch()
            end(original, waits)
            assert value(original, runs, "result") == "COMPLETED"
            assert lines(marks / "waiting") == 1
            # a restart does not start them either, the administrator does
            assert value(second, waits, "state") == "SCHED"
            second.ok("queue", "start", "--all")
            end(second, waits)
            assert lines(marks / "waiting") == 2
    assert lines(marks / "running") == 1


def outputs(statedir: Path) -> str:
    return "".join(path.read_text() for path in (statedir / "shell" / "jobs").glob("*.out"))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def token_works(instance: RunningInstance, token: str) -> bool:
    env = dict(instance.env)
    env |= {"FLUX_TRIO_URI": (instance.statedir / "uri").read_text(), "FLUX_TRIO_TOKEN": token}
    return invoked("jobs", env=env).returncode == 0


def test_instance_that_does_not_run_is_copied_by_the_command(tmp_path: Path) -> None:
    statedir = tmp_path / "state"
    with running_instance(statedir) as instance:
        jobid = submit(instance, "true")
        end(instance, jobid)
        assert instance.stop(signal.SIGKILL) == -signal.SIGKILL  # its socket stays
    done = invoked("backup", "--statedir", statedir, tmp_path / "backup")
    assert (done.returncode, done.stderr) == (0, "")
    mark = json.loads((tmp_path / "backup" / "backup.json").read_text())
    assert mark["statedir"] == str(statedir)
    invoked("restore", tmp_path / "backup", tmp_path / "copy")
    with running_instance(tmp_path / "copy") as copy:
        assert value(copy, jobid, "result") == "COMPLETED"


def test_without_a_state_there_is_no_backup(tmp_path: Path) -> None:
    done = invoked("backup", "--statedir", tmp_path / "none", tmp_path / "backup")
    assert done.returncode == 1
    assert f"no instance runs in {tmp_path}/none" in done.stderr
    assert not (tmp_path / "backup").exists()


def test_backup_without_room_leaves_nothing_and_the_instance_goes_on(tmp_path: Path) -> None:
    """No file of the instance may grow beyond some size, as with a quota."""
    with running_instance(tmp_path / "state") as instance:
        end(instance, submit(instance, "true"))
        pid = instance.process.pid
        limited = subprocess.run(
            ["prlimit", f"--pid={pid}", "--fsize=8192:unlimited"], check=False, capture_output=True
        )
        if limited.returncode:
            pytest.skip("needs prlimit")
        refused = instance.invoke("backup", tmp_path / "backup")
        subprocess.run(["prlimit", f"--pid={pid}", "--fsize=unlimited"], check=True)
        assert refused.exit_code == 1
        assert str(tmp_path / "backup") in refused.stderr
        assert not (tmp_path / "backup").exists()
        end(instance, submit(instance, "true"))
        instance.ok("backup", tmp_path / "backup")


MARK = Mark("/state", 1.0, "1")


def nothing(_path: Path) -> None:
    """Copy no state."""


def test_directory_that_is_being_filled_is_not_taken_by_another(tmp_path: Path) -> None:
    """Also if both have found it empty."""
    (tmp_path / "state").mkdir()
    target = tmp_path / "target"
    target.mkdir()

    def meanwhile(_path: Path) -> None:
        for attempt in (
            lambda: take(tmp_path / "state", target, MARK, nothing),
            lambda: restore(tmp_path / "other", target, 1.0),
        ):
            with pytest.raises(BackupError, match="the directory is not empty"):
                attempt()
        (target / "backup.json").read_bytes()  # it is still there
        done = invoked("restore", target, tmp_path / "copy")
        assert "not a complete backup: its backup.json is empty" in done.stderr
        assert flux_trio("start", "--statedir", target, "true").stderr == (
            f"flux-trio start: ERROR: {target} is a backup: "
            f"`flux-trio restore {target} NEW` makes a copy to start\n"
        )

    (tmp_path / "other").mkdir()
    take(tmp_path / "state", tmp_path / "other", MARK, lambda path: path.write_bytes(b""))
    take(tmp_path / "state", target, MARK, meanwhile)
    assert [path.name for path in target.iterdir()] == ["backup.json"]


@pytest.mark.parametrize("was_there", [True, False])
def test_backup_that_is_interrupted_leaves_nothing(tmp_path: Path, was_there: bool) -> None:
    plugins = tmp_path / "state" / "jobtap"
    plugins.mkdir(parents=True)
    (plugins / "limits.py").write_text("LIMIT = 1\n")
    (tmp_path / "state" / "log").write_text("line\n")
    target = tmp_path / "target"
    if was_there:
        target.mkdir()

    def interrupted(path: Path) -> None:
        path.write_bytes(b"half")
        assert (target / "jobtap" / "limits.py").read_text() == "LIMIT = 1\n"
        assert (target / "log").read_text() == "line\n"
        assert (target / "backup.json").read_bytes() == b""  # it claims the directory
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(tmp_path / "state", target, MARK, interrupted)
    assert target.exists() == was_there
    assert not was_there or not list(target.iterdir())


def test_directory_is_not_copied_into_itself(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for inside in (backup / "new", tmp_path / "link" / "backup" / "new"):
        done = invoked("restore", backup, inside)
        assert (done.returncode, done.stderr) == (
            1,
            f"flux-trio restore: ERROR: {inside}: expected a directory that is not in {backup}\n",
        )
    state = tmp_path / "state"
    done = invoked("backup", "--statedir", state, state / "jobtap")
    assert done.stderr == (
        f"flux-trio backup: ERROR: {state}/jobtap: expected a directory that is not in {state}\n"
    )
    assert not (backup / "new").exists()
    assert not (state / "jobtap").exists()


def test_disk_without_room_is_found_before_it_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state.sqlite").write_bytes(bytes(1000))
    (tmp_path / "state" / "tokens").write_bytes(b"")
    usage = type("Usage", (), {"free": 999})()
    there: list[str] = []
    copied: list[Path] = []

    def disk_usage(_: object) -> object:
        there.extend(path.name for path in (tmp_path / "backup").iterdir())
        return usage

    monkeypatch.setattr(files.shutil, "disk_usage", disk_usage)
    with pytest.raises(BackupError) as caught:
        take(tmp_path / "state", tmp_path / "backup", MARK, copied.append)
    assert copied == []
    assert there == ["backup.json"]
    assert caught.value.errnum == Errno.ENOSPC
    assert "1000 bytes are needed, the disk has room for 999" in caught.value.text
    assert not (tmp_path / "backup").exists()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    SqliteStore(tmp_path / "state" / "state.sqlite").close()
    take(tmp_path / "state", tmp_path / "backup", MARK, lambda path: SqliteStore(path).close())
    return tmp_path / "backup"


def test_directories_to_which_nothing_is_restored(backup: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").write_text("mine")
    for target, text in (
        (there, "the directory is not empty"),
        (there / "file", "expected a directory"),
    ):
        done = invoked("restore", backup, target)
        assert (done.returncode, done.stderr) == (
            1,
            f"flux-trio restore: ERROR: {target}: {text}\n",
        )
    assert [path.name for path in there.iterdir()] == ["file"]
    (there / "file").unlink()
    assert invoked("restore", backup, there).returncode == 0
    assert not list(there.glob("*restoring*"))
    assert not (there / "backup.json").exists()


def test_what_is_no_backup_is_not_restored(backup: Path, tmp_path: Path) -> None:
    done = invoked("restore", tmp_path / "state", tmp_path / "copy")
    assert "not a complete backup: there is no backup.json in it" in done.stderr
    (backup / "backup.json").write_text("{")
    assert f"{backup}/backup.json: expected" in invoked("restore", backup, tmp_path / "c").stderr
    assert not (tmp_path / "copy").exists()


def test_damaged_backup_is_not_restored(backup: Path, tmp_path: Path) -> None:
    state = backup / "state.sqlite"
    state.write_bytes(b"nothing of the kind" * 1000)
    with pytest.raises(Exception, match="cannot be opened"):
        restore(backup, tmp_path / "copy", 1.0)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([Accepted(2)], [Accepted(2), Ended(0, STATUS_LOST), Ended(1, STATUS_LOST)]),
        (
            [Accepted(2), Launched(0, 7, 8, "/c"), Launched(1, 8, 8), Ended(0, 256)],
            [Accepted(2), Ended(0, 256), Ended(1, STATUS_LOST)],
        ),
        (
            [Accepted(3), Launched(0, 7, 8), Failed(1, 127 << 8, "x")],
            [Accepted(3), Failed(1, 127 << 8, "x"), Ended(0, STATUS_LOST)],
        ),
        ([], [Accepted(1), Ended(0, STATUS_LOST)]),
    ],
)
def test_record_of_a_copy_names_no_process(before: list[Line], after: list[Line]) -> None:
    assert without_processes(before) == after
