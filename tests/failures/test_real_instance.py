"""The whole instance is killed, or its shell host alone: what was confirmed is not lost."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import pytest

from tests.support.instance import RunningInstance, invoked, running_instance, until
from tests.support.shell import hosts

pytestmark = pytest.mark.real


def test_killed_instance_has_lost_no_job_it_confirmed_and_no_process(tmp_path: Path) -> None:
    "16.schema.5; 32.start.5: pending jobs are pending, running ones run on and are started once."
    started, go = tmp_path / "started", tmp_path / "go"
    with running_instance(tmp_path / "state") as first:
        job = f"echo x >> {started}; until [ -e {go} ]; do sleep 0.02; done"
        running = first.ok("submit", "-n1", "sh", "-c", job).strip()
        first.ok("job", "wait-event", "-q", running, "start")
        blockers = [first.ok("submit", "-n4", "true").strip() for _ in range(3)]
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    with running_instance(tmp_path / "state") as second:
        known = second.ok("jobs", "-A", "-a", "-n", "-o", "{id.f58}").split()
        assert set(known) == {running, *blockers}
        go.touch()
        for jobid in known:
            second.ok("job", "wait-event", "-q", jobid, "clean")
            log = second.ok("job", "eventlog", jobid)
            assert not re.search(r" exception", log)
            assert [len(re.findall(rf" {name}\b", log)) for name in ("start", "finish")] == [1, 1]
    assert started.read_text() == "x\n"


@pytest.mark.parametrize("stderr", ["full disk", "reader waits"])
def test_log_that_cannot_be_written_ends_nothing(tmp_path: Path, stderr: str) -> None:
    "A module that crashes is an error in the log, which goes to standard error."
    with ExitStack() as files:
        if stderr == "full disk":
            into = files.enter_context(Path("/dev/full").open("wb", buffering=0))
        else:
            _, into = map(files.enter_context, _pipe())
            os.set_blocking(into.fileno(), False)
            with suppress(BlockingIOError):
                while True:
                    os.write(into.fileno(), b"x" * 4096)
            os.set_blocking(into.fileno(), True)
        with running_instance(tmp_path / "state", stderr=into) as instance:
            instance.ok("module", "kill", "sched")
            until(lambda: "module sched" in instance.ok("dmesg"))
            instance.ok("module", "load", "sched")
            instance.ok("run", "true")


def _pipe() -> Iterator[IO[bytes]]:
    reader, writer = os.pipe()
    yield os.fdopen(reader, "rb", buffering=0)
    yield os.fdopen(writer, "wb", buffering=0)


def events(instance: RunningInstance, jobid: str) -> list[str]:
    """The names of a job's events."""
    log = instance.ok("job", "eventlog", jobid)
    return [line.split()[1] for line in log.splitlines()]


def test_jobs_with_resources_wait_while_no_shell_host_can_be_started(tmp_path: Path) -> None:
    "32.hello.1: hello is said once the shell host answers; no job fails for the lack of one."
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "shell").write_text("in the way")
    with running_instance(state) as instance:
        jobs = [instance.ok("submit", "true").strip() for _ in range(6)]
        instance.ok("job", "wait-event", "-q", jobs[0], "alloc")
        until(lambda: "job-exec: cannot start the shell host" in instance.ok("queue", "status"))
        assert events(instance, jobs[0])[-1] == "alloc"
        (state / "shell").unlink()
        for jobid in jobs:
            instance.ok("job", "wait-event", "-q", jobid, "clean")
            assert "exception" not in events(instance, jobid)
        assert "shell host" not in instance.ok("queue", "status")


def test_running_jobs_go_on_and_others_wait_while_the_next_shell_host_cannot_be_started(
    tmp_path: Path,
) -> None:
    """readings: Exec override.

    The service withdraws, and says hello again; what runs is found again.
    """
    shell, go = tmp_path / "state" / "shell", tmp_path / "go"
    with running_instance(tmp_path / "state") as instance:
        wait = f"until [ -e {go} ]; do sleep 0.02; done"
        running = instance.ok("submit", "sh", "-c", wait).strip()
        instance.ok("job", "wait-event", "-q", running, "start")
        (host,) = hosts(shell)
        (shell / "shell.sock").unlink()
        (shell / "shell.sock").mkdir()
        os.kill(host, signal.SIGKILL)
        until(lambda: "job-exec: cannot start the shell host" in instance.ok("queue", "status"))
        waiting = instance.ok("submit", "true").strip()
        instance.ok("job", "wait-event", "-q", waiting, "alloc")
        (shell / "shell.sock").rmdir()
        instance.ok("job", "wait-event", "-q", waiting, "clean")
        assert "exception" not in events(instance, waiting)
        assert events(instance, running)[-1] == "start"
        go.touch()
        instance.ok("job", "wait-event", "-q", running, "clean")
        assert events(instance, running).count("start") == 1


def test_shell_host_that_is_killed_leaves_its_jobs_and_the_next_one_sees_their_end(
    tmp_path: Path,
) -> None:
    "How a job ended that the next host did not start cannot be known: that is said, not guessed."
    started, go = tmp_path / "started", tmp_path / "go"
    with running_instance(tmp_path / "state") as instance:
        wait = f"echo x >> {started}; until [ -e {go} ]; do sleep 0.02; done"
        jobid = instance.ok("submit", "sh", "-c", wait).strip()
        instance.ok("job", "wait-event", "-q", jobid, "start")
        until(started.exists)
        (host,) = hosts(tmp_path / "state" / "shell")
        os.kill(host, signal.SIGKILL)
        until(lambda: hosts(tmp_path / "state" / "shell") not in ([], [host]))
        instance.ok("run", "true")
        assert " finish" not in instance.ok("job", "eventlog", jobid)
        go.touch()
        instance.ok("job", "wait-event", "-q", jobid, "clean")
        log = instance.ok("job", "eventlog", jobid)
        assert [len(re.findall(rf" {name}\b", log)) for name in ("start", "finish")] == [1, 1]
        assert 'severity=0 note="task 0: end not seen: its shell host was killed' in log
    assert started.read_text() == "x\n"


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("{}.record", b'["ended",0,1280]', b'["ended",0,0]'), ("{}.0.out", b"well", b"wall")],
)
def test_file_of_a_job_that_is_changed_while_all_is_down_is_named_in_an_exception(
    tmp_path: Path, file: str, old: bytes, new: bytes
) -> None:
    statedir, go = tmp_path / "state", tmp_path / "go"
    wait = f"echo well; until [ -e {go} ]; do sleep 0.02; done; exit 5"
    with running_instance(statedir) as instance:
        jobid = instance.ok("submit", "sh", "-c", wait).strip()
        instance.ok("job", "wait-event", "-q", jobid, "start")
        number = instance.ok("job", "id", "--to=dec", jobid).strip()
        path = statedir / "shell" / "jobs" / file.format(number)
        assert instance.stop(signal.SIGKILL) == -signal.SIGKILL
        go.touch()
        record = path.with_name(f"{number}.record")
        until(lambda: b'["written"' in record.read_bytes())
        (host,) = hosts(statedir / "shell")
        os.kill(host, signal.SIGKILL)
    path.write_bytes(path.read_bytes().replace(old, new))
    checked = invoked("fsck", "--statedir", statedir)
    assert checked.returncode == 1
    (damage,) = checked.stdout.splitlines()
    assert damage.startswith(f"{path}: ")
    with running_instance(statedir) as instance:
        instance.ok("job", "wait-event", "-q", jobid, "clean")
        assert instance.ok("jobs", "-n", "-o", "{result}", jobid).strip() == "FAILED"
        assert f'note="damaged: {damage}"' in instance.ok("job", "eventlog", jobid)
