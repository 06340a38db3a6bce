"""A shell host that lacks something to start a job: the job waits, and starts when it is there."""

from __future__ import annotations

import errno
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from flux_trio.shell.protocol import (
    JOBS_NAME,
    Attach,
    Done,
    Feed,
    List,
    Listing,
    Postponed,
    Started,
    Unknown,
)
from flux_trio.shell.shortage import is_shortage
from tests.support.shell import Shell, hosts, open_shell, tasks, until

pytestmark = pytest.mark.real

STREAMS_OF_ONE = 3  # descriptors: standard input, output and error
PIPE_FOR_EXEC = 2  # by which a child says that it could not be executed
COMMAND, OWN = "/bin/command", "/state/shell/jobs/1.0.out"
NOT_LAUNCHED = 1000  # a job
PIPE_FOR_INPUT = 2  # one of them stays with the host
PMI_DOOR = 2  # of a job of several tasks; one of them stays with the host
LEFT_FOR_ONE_OF_TWO = PMI_DOOR + PIPE_FOR_INPUT + STREAMS_OF_ONE - 1 + PIPE_FOR_EXEC


@contextmanager
def limited(shell: Shell, which: int, value: int) -> Iterator[None]:
    """The host has the soft limit `value` until the block is left."""
    (host,) = hosts(shell.directory)
    soft, hard = resource.prlimit(host, which)
    resource.prlimit(host, which, (value, hard))
    try:
        yield
    finally:
        resource.prlimit(host, which, (soft, hard))


@asynccontextmanager
async def descriptors_left(shell: Shell, count: int) -> AsyncIterator[None]:
    """The host can open `count` descriptors more, counted when it opens and closes none.

    A start waits until the thread is done that moves the host to another cgroup, with a descriptor
    open, so the count is made after a start that launches nothing.
    """
    shell.start(NOT_LAUNCHED, "/no/such/command")
    await shell.hear(Done, NOT_LAUNCHED)
    shell.forget(NOT_LAUNCHED)
    used, before = await _descriptors(shell), set[int]()
    while used != before:
        used, before = await _descriptors(shell), used
    free = (number for number in range(1 << 16) if number not in used)
    limit = 0
    for _ in range(count + 1):
        limit = next(free)
    with limited(shell, resource.RLIMIT_NOFILE, limit):
        yield


async def _descriptors(shell: Shell) -> set[int]:
    """The descriptors of the host, once it has done what it was asked before."""
    shell.send(List())
    await shell.hear(Listing)
    return _open_of(*hosts(shell.directory))


def _open_of(host: int) -> set[int]:
    return {int(path.name) for path in Path(f"/proc/{host}/fd").iterdir()}


def files(directory: Path) -> list[str]:
    """What is there of jobs."""
    return sorted(path.name for path in (directory / JOBS_NAME).iterdir())


@pytest.mark.parametrize("left", range(STREAMS_OF_ONE + PIPE_FOR_EXEC))
async def test_start_without_a_descriptor_is_postponed(
    directory: Path, shell: Shell, left: int
) -> None:
    """For the record, for each stream, and for the process itself."""
    async with descriptors_left(shell, left):
        shell.start(1, "echo", "here")
        postponed = await shell.hear(Postponed, 1)
        assert "Too many open files" in postponed.text
        assert files(directory) == []  # nothing is kept of what was not started
    done = await shell.run(1, "echo", "here")
    assert (done.status, shell.output(1)) == (0, "here\n")


async def test_start_without_room_for_its_record_is_postponed(
    directory: Path, shell: Shell
) -> None:
    with limited(shell, resource.RLIMIT_FSIZE, 0):
        shell.start(1, "true")
        postponed = await shell.hear(Postponed, 1)
        assert f"no file of a job can be opened in {directory / JOBS_NAME}: " in postponed.text
        assert files(directory) == []
    assert (await shell.run(1, "true")).status == 0


async def test_host_whose_directory_of_jobs_is_gone_starts_them_when_it_is_back(
    directory: Path, shell: Shell
) -> None:
    (directory / JOBS_NAME).rename(directory / "elsewhere")
    shell.start(1, "true")
    await shell.hear(Postponed, 1)
    (directory / "elsewhere").rename(directory / JOBS_NAME)
    assert (await shell.run(1, "true")).status == 0


async def test_job_that_was_postponed_starts_once(shell: Shell) -> None:
    async with descriptors_left(shell, STREAMS_OF_ONE):
        shell.start(1, "sh", "-c", "echo $$")
        await shell.hear(Postponed, 1)
    await shell.run(1, "sh", "-c", "echo $$")
    shell.start(1, "sh", "-c", "echo $$")
    await shell.hear(Done, 1)
    assert len(shell.output(1).splitlines()) == 1


async def test_tasks_go_on_where_the_host_was_short_of_something(shell: Shell) -> None:
    """The first task runs and waits for input; the second starts when it can, the first not again.

    Nor is the file emptied that the first has written.
    """
    script = 'echo "task $FLUX_TASK_RANK"; cat'
    async with descriptors_left(shell, LEFT_FOR_ONE_OF_TWO):
        shell.start(1, "sh", "-c", script, ntasks=2, input=True, pmi={})
        await shell.hear(Postponed, 1)
        await shell.output_holds(1, "task 0\n")
    shell.start(1, "sh", "-c", script, ntasks=2, input=True, pmi={})
    await shell.hear(Started, 1)
    shell.send(Feed(1, b"fed\n", eof=True))
    done = await shell.hear(Done, 1)
    assert (done.status, done.lost, done.ntasks) == (0, [], 2)
    assert [shell.output(1, taskid) for taskid in (0, 1)] == ["task 0\nfed\n", "task 1\nfed\n"]


async def test_job_is_not_over_when_its_first_tasks_end_before_the_others_start(
    directory: Path, shell: Shell
) -> None:
    script = "[ $FLUX_TASK_RANK = 1 ] || exit 3"
    async with descriptors_left(shell, LEFT_FOR_ONE_OF_TWO):
        shell.start(1, "sh", "-c", script, ntasks=2, input=True, pmi={})
        await shell.hear(Postponed, 1)
        await until(lambda: not tasks(directory))
        shell.send(List())
        assert (await shell.hear(Listing)).ended == []
    shell.start(1, "sh", "-c", script, ntasks=2, input=True, pmi={})
    done = await shell.hear(Done, 1)
    assert (done.status, done.lost) == (3 << 8, [])


async def test_job_whose_other_tasks_are_given_up_says_so_and_ends(shell: Shell) -> None:
    """What was to be started is not: the client has asked how the job is, not for a start."""
    async with descriptors_left(shell, LEFT_FOR_ONE_OF_TWO):
        shell.start(1, "cat", ntasks=2, input=True, pmi={})
        await shell.hear(Postponed, 1)
    shell.send(Attach(1))
    started = await shell.hear(Started, 1)
    assert started.failure is not None
    assert (started.failure.taskid, started.failure.text) == (1, "given up before its start")
    shell.send(Feed(1, b"", eof=True))
    assert (await shell.hear(Done, 1)).status == 126 << 8


async def test_job_that_waits_is_unknown_to_who_only_asks_for_it(directory: Path) -> None:
    async with open_shell(directory) as shell, descriptors_left(shell, 0):
        shell.start(1, "true")
        await shell.hear(Postponed, 1)
        shell.send(Attach(1))
        await shell.hear(Unknown, 1)


async def test_host_without_descriptors_gives_no_core_away_under_what_a_job_has_left(
    directory: Path, shell: Shell
) -> None:
    """What it cannot look for it does not take to be gone: it looks again."""
    script = 'echo $$; setsid sh -c "echo up; sleep 1000" & until [ -e $0 ]; do sleep 0.01; done'
    shell.start(1, "sh", "-c", script, f"{directory}/go")
    await shell.output_holds(1, "up\n")
    task = Path("/proc", shell.output(1).split()[0])
    async with descriptors_left(shell, 0):
        (directory / "go").touch()
        await until(lambda: not task.exists())  # reaped
        shell.send(List())
        assert (await shell.hear(Listing)).ended == []
    await shell.hear(Done, 1)
    assert tasks(directory) == []


@pytest.mark.parametrize(
    ("number", "filename", "has_limits", "waits"),
    [
        (errno.EAGAIN, None, False, True),  # fork
        (errno.ENOMEM, None, True, True),
        (errno.ENOMEM, COMMAND, False, True),  # exec
        (errno.ENOMEM, COMMAND, True, False),  # as it will for as long as the job has its limits
        (errno.ENFILE, "/home/of/the/job", False, True),
        (errno.ENOSPC, OWN, False, True),
        (errno.EFBIG, OWN, False, True),
        (errno.ENOSPC, "/home/of/the/job", False, False),
        (errno.EACCES, COMMAND, False, False),
        (errno.ENOENT, OWN, False, False),
    ],
)
def test_only_what_the_host_lacks_is_waited_for(
    number: int, filename: str | None, has_limits: bool, waits: bool
) -> None:
    error = OSError(number, "text", filename)
    assert is_shortage(error, [OWN], COMMAND, has_limits=has_limits) is waits
