"""A real instance that may write nothing for a while: RLIMIT_FSIZE stands for the full disk."""

from __future__ import annotations

import resource
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from flux_trio.store.room import RESERVE_FILE
from tests.support.instance import (
    DEADLINE_S,
    FLUX_TRIO,
    TWO_NODES,
    RunningInstance,
    environment,
    until,
)

pytestmark = pytest.mark.real

WORDS = "no room"
ENDS = [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.gate)]


@contextmanager
def instance_in(statedir: Path) -> Iterator[RunningInstance]:
    """A ready instance without a trace, which would need room as well."""
    statedir.mkdir(exist_ok=True)
    config = statedir / "config.toml"
    config.write_text(TWO_NODES)
    process = subprocess.Popen(
        [*FLUX_TRIO, "start", "--config", config, "--statedir", statedir],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
        assert ready
        yield RunningInstance(statedir, process, process.stdout.readline())
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()


def make_room(instance: RunningInstance, *, room: bool) -> None:
    """Whether the instance may write; its shell host, started before, may in any case."""
    _, most = resource.prlimit(instance.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(instance.process.pid, resource.RLIMIT_FSIZE, (most if room else 0, most))


def waiting_job(instance: RunningInstance, go: Path) -> str:
    """A job that runs until `go` is there, says so, and ends well."""
    wait = f"until [ -e {go} ]; do sleep 0.02; done; echo result"
    jobid = instance.ok("submit", "sh", "-c", wait).strip()
    instance.ok("job", "wait-event", "-q", jobid, "start")
    return jobid


def ends_on_a_full_disk(instance: RunningInstance, go: Path) -> str:
    jobid = waiting_job(instance, go)
    make_room(instance, room=False)
    go.touch()
    until(lambda: WORDS in instance.ok("queue", "status"))
    refused = instance.invoke("submit", "true")
    assert refused.exit_code != 0
    assert WORDS in refused.stderr
    assert " finish" not in instance.ok("job", "eventlog", jobid), "reads go on"
    return jobid


def assert_ended_well(instance: RunningInstance, jobid: str) -> None:
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    assert instance.ok("job", "attach", jobid) == "result\n"
    log = instance.ok("job", "eventlog", jobid)
    assert "exception" not in log
    assert log.count(" finish status=0") == log.count(" finish") == 1


def test_cancel_on_a_full_disk_says_why_it_waits_and_is_done_when_there_is_room(
    tmp_path: Path,
) -> None:
    with instance_in(tmp_path / "state") as instance:
        held = instance.ok("submit", "--urgency=hold", "true").strip()
        jobid = ends_on_a_full_disk(instance, tmp_path / "go")
        cancel = instance.popen("cancel", held)
        assert cancel.stderr is not None
        said = cancel.stderr.readline()
        assert said.startswith("flux-trio cancel: waits for an answer: kvs: no room for commits: ")
        make_room(instance, room=True)
        assert cancel.communicate(timeout=DEADLINE_S) == ("", "")
        assert cancel.returncode == 0
        assert 'type="cancel"' in instance.ok("job", "eventlog", held)
        assert_ended_well(instance, jobid)
        instance.ok("run", "true")
        assert WORDS not in instance.ok("queue", "status")
        assert instance.stop() == 0


@pytest.mark.parametrize("signum", ENDS)
def test_job_that_ended_on_a_full_disk_is_whole_after_a_restart(
    tmp_path: Path, signum: signal.Signals
) -> None:
    "The shell host keeps its copy until the final release is stored."
    with instance_in(tmp_path / "state") as first:
        jobid = ends_on_a_full_disk(first, tmp_path / "go")
        first.stop(signum)
    with instance_in(tmp_path / "state") as second:
        assert_ended_well(second, jobid)
        until(lambda: not list((tmp_path / "state" / "shell" / "jobs").iterdir()))
        assert second.stop() == 0


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A disk of its own, if this user may mount one."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> None:
    """Leave no byte of room."""
    with (disk / "other").open("ab", buffering=0) as other, suppress(OSError):
        while True:
            other.write(bytes(1 << 10))


@pytest.mark.parametrize("signum", ENDS)
def test_restart_on_a_full_disk_goes_far_enough_for_a_purge(
    tmp_path: Path, signum: signal.Signals
) -> None:
    """The room that an instance has kept is enough for the start, a purge, and the next job."""
    with small_disk(tmp_path / "disk") as disk:
        with instance_in(disk / "state") as first:
            for _ in range(3):
                first.ok("run", "sh", "-c", "head -c 200000 /dev/urandom | base64")
            first.ok("queue", "stop")
            waits = first.ok("submit", "true").strip()
            fill(disk)
            first.stop(signum)
        fill(disk)
        with instance_in(disk / "state") as second:
            purged = second.ok("job", "purge", "--force", "--num-limit=0")
            assert purged == "purged 3 inactive jobs, 0 remaining\n"
            second.ok("queue", "start")
            second.ok("job", "wait-event", "-q", waits, "clean")
            assert second.ok("run", "echo", "done") == "done\n"
            assert second.stop() == 0


def test_start_without_any_room_is_ready_and_says_why_jobs_wait(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with instance_in(disk / "state") as first:
            first.ok("submit", "--urgency=hold", "true")
            first.stop(signal.SIGKILL)
        (disk / "state" / RESERVE_FILE).unlink()
        fill(disk)
        with instance_in(disk / "state") as second:
            until(lambda: WORDS in second.ok("queue", "status"))
            (disk / "other").unlink()
            assert second.ok("run", "echo", "done") == "done\n"
            assert second.stop() == 0
