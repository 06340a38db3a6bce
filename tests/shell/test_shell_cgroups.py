"""The cgroups of a shell host's jobs, real ones."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from flux_trio.shell import cgroups, job_cgroups
from flux_trio.shell.job import start_time
from flux_trio.shell.job_cgroups import SPARE_MAX, JobCgroups
from flux_trio.shell.orphans import name_of_host
from flux_trio.shell.protocol import JOBS_NAME, LOG_NAME, Attach, Done, Signal, Started
from flux_trio.shell.records import (
    RECORD_SUFFIX,
    Accepted,
    Ended,
    Launched,
    Line,
    encode_record,
    parse_record,
)
from tests.support.cgroups import cgroup_of, limited_to, why_none
from tests.support.shell import (
    Shell,
    hosts,
    no_process_left,
    open_shell,
    processes_of,
    tasks,
    tasks_in_number,
    until,
)

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(why_none()), reason=why_none())]

# Nothing but its cgroup tells whose it is.
SCRUBBED = "env -i setsid sleep {0} </dev/null >/dev/null 2>&1 &"
# Its process is another one each millisecond, each in a session of its own.
COMET = 'setsid sh -c "$0" "$0" & exit'


@pytest.fixture
def home() -> Iterator[Path]:
    """The cgroup in which hosts start; at the end there is nothing in it."""
    with limited_to(1000) as cgroup:
        yield cgroup


@pytest.fixture
def directory(tmp_path: Path, home: Path) -> Iterator[Path]:
    path = tmp_path / "shell"
    with no_process_left(path):
        yield path
    assert list(home.glob("*/")) == []  # hosts that end take their cgroups along


def sleepers(seconds: int) -> list[int]:
    return processes_of(f"sleep\0{seconds}\0".encode())


@pytest.fixture
def orphan() -> int:
    """Seconds that no other test sleeps."""
    return os.getpid() * 1000 + 999


def cgroups_of(directory: Path, jobid: int) -> list[str]:
    """As the record of the job names them."""
    data = (directory / JOBS_NAME / f"{jobid}{RECORD_SUFFIX}").read_bytes()
    lines = parse_record(jobid, data).lines
    return [line.cgroup for line in lines if isinstance(line, Launched)]


async def test_what_bears_no_sign_ends_with_its_job_beside_an_older_one(
    directory: Path, shell: Shell, orphan: int
) -> None:
    shell.start(1, "sleep", "1000")
    await shell.hear(Started, 1)
    go_on = directory / "go"
    script = f"{SCRUBBED.format(orphan)} until [ -e $0 ]; do sleep 0.01; done"
    shell.start(2, "sh", "-c", script, str(go_on))
    await until(lambda: bool(sleepers(orphan)))
    go_on.touch()
    await shell.hear(Done, 2)
    assert sleepers(orphan) == []
    await end(shell, 1)
    shell.forget(2)


async def test_what_multiplies_faster_than_it_is_looked_for_ends_with_its_job(
    directory: Path, shell: Shell
) -> None:
    shell.start(1, "sleep", "1000")
    shell.start(2, "sh", "-c", '(sh -c "$0" "$0" &); sleep 0.1', COMET)
    await shell.hear(Done, 2)
    (older,) = await tasks_in_number(directory, 1)
    assert older in processes_of(b"sleep\x001000\0")  # other tests run such ones, too
    await end(shell, 1)
    shell.forget(2)


async def test_tasks_of_a_job_begin_in_its_cgroup_and_the_host_is_in_that_of_no_job(
    directory: Path, shell: Shell
) -> None:
    for jobid in (1, 2):
        shell.start(jobid, "sh", "-c", "grep ^0:: /proc/self/cgroup; sleep 1000", ntasks=2)
        await shell.hear(Started, jobid)  # then its record is written
        for taskid in (0, 1):
            await shell.output_holds(jobid, "\n", taskid)
    said = [[shell.output(jobid, taskid) for taskid in (0, 1)] for jobid in (1, 2)]
    recorded = [cgroups_of(directory, jobid) for jobid in (1, 2)]
    for outputs, names in zip(said, recorded, strict=True):
        assert len(set(outputs)) == len(set(names)) == 1
        assert outputs[0].strip().endswith(Path(names[0]).name)
    assert recorded[0] != recorded[1]
    (host,) = hosts(directory)
    await until(lambda: f"{cgroup_of(host)}\n" not in said[0] + said[1])
    for jobid in (1, 2):
        await end(shell, jobid)


async def test_next_host_ends_what_bears_no_sign(
    directory: Path, shell: Shell, orphan: int
) -> None:
    """Without cgroups that would be found by its environment alone."""
    shell.start(1, "sleep", "1000")
    shell.start(2, "sh", "-c", f"{SCRUBBED.format(orphan)} echo $$; sleep 1000")
    await shell.hear(Started, 2)
    await shell.output_holds(2, "\n")
    await until(lambda: bool(sleepers(orphan)))
    (host,) = hosts(directory)
    os.kill(host, signal.SIGSTOP)
    os.kill(int(shell.output(2)), signal.SIGKILL)
    await shell.kill_host()
    shell.send(Attach(2))
    assert (await shell.hear(Done, 2)).lost == [0]
    assert sleepers(orphan) == []
    await end(shell, 1)
    shell.forget(2)


async def test_next_host_ends_what_a_host_had_launched_and_not_recorded(
    directory: Path, shell: Shell, orphan: int
) -> None:
    shell.start(1, "sleep", "1000")
    await shell.hear(Started, 1)
    unrecorded = Path(cgroups_of(directory, 1)[0]).with_name("unrecorded")
    unrecorded.mkdir()
    with started_in(unrecorded, "sleep", str(orphan)) as lost:
        await shell.kill_host()
        assert lost.wait() == -signal.SIGKILL
    shell.send(Attach(1))
    await shell.hear(Started, 1)
    await end(shell, 1)


async def test_cgroup_of_a_job_is_removed_at_its_end_with_what_it_made_beneath(
    directory: Path, shell: Shell
) -> None:
    shell.start(1, "sleep", "1000")
    await shell.hear(Started, 1)
    (name,) = cgroups_of(directory, 1)
    (Path(name) / "inner" / "inmost").mkdir(parents=True)
    (host,) = hosts(directory)
    await until(lambda: Path(name).name not in cgroup_of(host))
    await end(shell, 1)
    await until(lambda: not Path(name).exists())


async def test_cgroup_that_the_kernel_still_holds_is_removed_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rmdir(2) fails while an ended process is not yet gone from its last processor."""
    refusals = iter([OSError(errno.EBUSY, "busy")] * 3)
    rmdir = Path.rmdir

    def busy_at_first(path: Path) -> None:
        if refusal := next(refusals, None):
            raise refusal
        rmdir(path)

    async with trio.open_nursery() as nursery:
        groups = JobCgroups("test")
        nursery.start_soon(groups.run)
        await groups.ready()
        cgroup = Path(groups.assign(1).cgroup)
        await groups.ready()
        (cgroup / "inner").mkdir()
        monkeypatch.setattr(Path, "rmdir", busy_at_first)
        groups.release(1)
        await until(lambda: not cgroup.exists())
        nursery.cancel_scope.cancel()
    await groups.leave()
    assert list(home.glob("*/")) == []  # noqa: ASYNC240


@pytest.mark.parametrize("at_once_s", [math.inf, -math.inf])
async def test_each_job_has_a_cgroup_whether_the_host_moves_at_once_or_in_a_thread(
    home: Path, monkeypatch: pytest.MonkeyPatch, at_once_s: float
) -> None:
    async with trio.open_nursery() as nursery:
        groups = JobCgroups("test")
        nursery.start_soon(groups.run)
        await groups.ready()
        monkeypatch.setattr(job_cgroups, "AT_ONCE_S", at_once_s)
        taken = []
        for jobid in range(1, 6):
            taken.append(groups.assign(jobid).cgroup)
            groups.move_on()
            if at_once_s < 0:
                await groups.ready()
        assert len(set(taken)) == 5
        assert [groups.left(jobid) for jobid in range(1, 6)] == [[]] * 5
        nursery.cancel_scope.cancel()
    await groups.leave()
    assert list(home.glob("*/")) == []  # noqa: ASYNC240


@asynccontextmanager
async def open_groups(home: Path) -> AsyncIterator[JobCgroups]:
    """The host of whose jobs they are is this process. At the end nothing is left in `home`."""
    groups = JobCgroups("test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(groups.run)
        await groups.ready()
        yield groups
        nursery.cancel_scope.cancel()
    await groups.leave()
    assert list(home.glob("*/")) == []  # noqa: ASYNC240


async def test_cgroup_of_a_job_that_is_over_serves_a_later_one(home: Path) -> None:
    async with open_groups(home) as groups:
        first = groups.assign(1)
        await groups.ready()
        groups.release(1)
        second = groups.assign(2)
        await groups.ready()
        third = groups.assign(3)
        await groups.ready()
        assert second.cgroup != first.cgroup == third.cgroup
        assert first.use < second.use < third.use


async def test_host_keeps_so_many_cgroups_of_ended_jobs_and_no_more(home: Path) -> None:
    async with open_groups(home) as groups:
        jobs = range(SPARE_MAX + 3)
        for jobid in jobs:
            groups.assign(jobid)
            await groups.ready()
        for jobid in jobs:
            groups.release(jobid)
        await until(lambda: len(list(home.glob("*/*/"))) == SPARE_MAX + 1)  # and the host's own


async def test_host_makes_a_cgroup_if_that_of_an_ended_job_is_gone(home: Path) -> None:
    async with open_groups(home) as groups:
        gone = Path(groups.assign(1).cgroup)
        await groups.ready()
        groups.release(1)
        gone.rmdir()  # noqa: ASYNC240
        groups.assign(2)
        await groups.ready()
        after = Path(groups.assign(3).cgroup)
        assert cgroup_of("self").endswith(f"/{after.name}")
        await groups.ready()


def changed(cgroup: Path, change: str) -> None:
    """As a job can change its own cgroup."""
    match change.split():
        case ["child"]:
            (cgroup / "inner").mkdir()
        case ["chmod", name]:
            (cgroup / name).chmod(0o777)
        case ["chown", name]:
            os.chown(cgroup / name, 65534, 65534)
        case [name, value]:
            (cgroup / name).write_text(value)


@pytest.mark.parametrize(
    "change",
    [
        "child",
        "chmod .",
        "chmod cgroup.procs",
        "chown .",
        "chown cgroup.procs",
        "cgroup.freeze 1",
        "cgroup.max.depth 3",
        "cgroup.max.descendants 3",
        "cgroup.pressure 0",
    ],
)
async def test_cgroup_that_a_job_has_changed_serves_no_other(home: Path, change: str) -> None:
    async with open_groups(home) as groups:
        cgroup = Path(groups.assign(1).cgroup)
        await groups.ready()
        assert cgroups.is_as_new(cgroup)
        try:
            changed(cgroup, change)
        except OSError as error:
            pytest.skip(f"{change}: {error.strerror}")
        assert not cgroups.is_as_new(cgroup)
        groups.release(1)
        await until(lambda: not cgroup.exists())
        groups.assign(2)
        await groups.ready()
        assert groups.assign(3).cgroup != str(cgroup)
        await groups.ready()


def test_cgroup_with_a_process_is_not_as_new(home: Path) -> None:
    cgroup = home / "other"
    cgroup.mkdir()
    with started_in(cgroup, "sleep", "1000") as process:
        assert not cgroups.is_as_new(cgroup)
        process.kill()
    assert cgroups.is_as_new(cgroup)


def of_earlier_host(directory: Path, home: Path) -> Path:
    """A cgroup that an earlier host of `directory` has made."""
    directory.mkdir()
    cgroup = home / f"flux-trio-{name_of_host(directory)}" / "token-1"
    cgroup.mkdir(parents=True)
    return cgroup


def record(directory: Path, jobid: int, *lines: Line) -> None:
    (directory / JOBS_NAME).mkdir(parents=True, exist_ok=True)
    (directory / JOBS_NAME / f"{jobid}{RECORD_SUFFIX}").write_bytes(encode_record(jobid, lines))


@pytest.mark.parametrize(("ended", "running"), [(1, 2), (2, 1)])
async def test_next_host_leaves_alone_what_runs_in_the_cgroup_of_an_ended_job(
    directory: Path, home: Path, ended: int, running: int
) -> None:
    """The one before had launched both jobs there, one after the other."""
    cgroup = of_earlier_host(directory, home)
    name = str(cgroup)
    with started_in(cgroup, "sleep", "1000") as process:
        started = start_time(process.pid)
        assert started is not None
        gone = Launched(0, process.pid, started - 1, name, use=9)
        record(directory, ended, Accepted(1), gone, Ended(0, 0))
        record(directory, running, Accepted(1), Launched(0, process.pid, started, name, use=10))
        async with open_shell(directory) as shell:
            shell.send(Attach(ended))
            assert (await shell.hear(Done, ended)).status == 0
            shell.send(Attach(running))
            assert await shell.hear(Started, running) == Started(running)
            assert process.poll() is None
            process.kill()
            process.wait()
            await shell.hear(Done, running)
            shell.forget(ended, running)


async def test_next_host_ends_what_was_launched_unrecorded_in_the_cgroup_of_an_ended_job(
    directory: Path, home: Path
) -> None:
    cgroup = of_earlier_host(directory, home)
    with started_in(cgroup, "sleep", "1000") as lost:
        gone = Launched(0, lost.pid, 1, str(cgroup), use=9)
        record(directory, 1, Accepted(1), gone, Ended(0, 0))
        async with open_shell(directory) as shell:
            assert lost.wait() == -signal.SIGKILL
            shell.send(Attach(1))
            assert (await shell.hear(Done, 1)).status == 0
            shell.forget(1)


async def test_host_that_gets_no_further_cgroup_launches_jobs_without(
    directory: Path, home: Path
) -> None:
    (home / "cgroup.max.descendants").write_text("2")  # the tree, and what job 1 takes
    async with open_shell(directory) as shell:
        shell.start(1, "sleep", "1000")
        await shell.hear(Started, 1)
        assert (await shell.run(2, "true")).status == 0
        assert (len(cgroups_of(directory, 1)[0]) > 0, cgroups_of(directory, 2)) == (True, [""])
        assert "new jobs get no cgroup" in (directory / LOG_NAME).read_text()
        await end(shell, 1)
        shell.forget(2)


async def test_instance_in_a_job_has_its_cgroups_beneath_that_of_the_job(directory: Path) -> None:
    inner = directory.parent / "inner"
    command = f"{sys.executable} -m flux_trio.shell {inner}"
    async with open_shell(directory) as shell:
        shell.start(1, "sh", "-c", f"{command}; echo up; sleep 1000")
        await shell.output_holds(1, "up\n")
        async with open_shell(inner) as nested:
            nested.start(7, "sleep", "1000")
            await nested.hear(Started, 7)
            (outer_name,), (inner_name,) = cgroups_of(directory, 1), cgroups_of(inner, 7)
            assert Path(inner_name).parent.parent == Path(outer_name)
        await end(shell, 1)  # the client of the inner host would start another one
        assert (hosts(inner), tasks(inner)) == ([], [])
        await until(lambda: not Path(outer_name).exists())


@pytest.mark.parametrize("kill", ["cgroup.kill", "not.there"])
def test_everything_beneath_is_killed(
    home: Path, kill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.14 one by one."""
    monkeypatch.setattr(cgroups, "KILL", kill)
    inner = home / "outer" / "inner"
    inner.mkdir(parents=True)
    with (
        started_in(inner.parent, "sleep", "1000") as first,
        started_in(inner, "sleep", "1000") as second,
    ):
        assert sorted(cgroups.processes_in(inner.parent)) == sorted([first.pid, second.pid])
        assert not cgroups.remove(inner.parent)
        cgroups.kill_all(inner.parent)
        assert [first.wait(), second.wait()] == [-signal.SIGKILL] * 2
    assert not cgroups.is_populated(inner.parent)
    assert cgroups.remove(inner.parent)


async def end(shell: Shell, jobid: int) -> None:
    """SIGTERM ends it; it is forgotten then."""
    shell.send(Signal(jobid, signal.SIGTERM))
    await shell.hear(Done, jobid)
    shell.forget(jobid)


def started_in(cgroup: Path, *argv: str) -> subprocess.Popen[bytes]:
    enter: Callable[[], None] = lambda: cgroups.enter(cgroup)  # noqa: E731
    return subprocess.Popen(argv, preexec_fn=enter)
