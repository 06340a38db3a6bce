"""Standard input of the shell host's tasks, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_trio.shell.input import NO_PIPES, PIPES_MAX, JobInputs
from flux_trio.shell.protocol import Attach, Done, Fed, Feed, List, Listing, Signal, Started
from tests.support.shell import Shell

pytestmark = pytest.mark.real

PIPE_BYTES = 1 << 16


async def start(shell: Shell, script: str, ntasks: int = 1) -> None:
    shell.start(1, "sh", "-c", script, ntasks=ntasks, input=True)
    assert await shell.hear(Started) == Started(1)


async def test_every_task_reads_what_the_job_is_fed(common_shell: Shell) -> None:
    await start(common_shell, "cat; echo end", ntasks=2)
    common_shell.client.send(Feed(1, b"one\n", eof=False))
    assert await common_shell.hear(Fed) == Fed(1, open=True)
    common_shell.client.send(Feed(1, b"two\n", eof=True))
    assert await common_shell.hear(Fed) == Fed(1, open=False)
    await common_shell.hear(Done)
    assert [common_shell.output(1, task) for task in (0, 1)] == ["one\ntwo\nend\n"] * 2


async def test_what_has_no_room_is_taken_when_the_task_reads(common_shell: Shell) -> None:
    await start(common_shell, "read first; echo $first; wc -c")
    common_shell.client.send(Feed(1, bytes(PIPE_BYTES), eof=False))
    await common_shell.hear(Fed)
    common_shell.client.send(Feed(1, b"\nmore", eof=True))
    assert await common_shell.hear(Fed) == Fed(1, open=False)
    assert (await common_shell.hear(Done)).status == 0
    assert common_shell.output(1).endswith("4\n")


async def test_end_of_the_job_ends_what_waits_for_it(tmp_path: Path, common_shell: Shell) -> None:
    go_on = tmp_path / "go"
    await start(common_shell, f"until [ -e {go_on} ]; do sleep 0.01; done")
    common_shell.client.send(Feed(1, bytes(2 * PIPE_BYTES), eof=False))
    common_shell.client.send(List())
    await common_shell.hear(Listing)  # then the feed is waiting
    go_on.touch()
    assert await common_shell.hear(Fed) == Fed(1, open=False)
    common_shell.client.send(Attach(1))  # the pipe may have broken before the task was reaped
    await common_shell.hear(Done)


async def test_job_without_pipes_cannot_be_fed(common_shell: Shell) -> None:
    await common_shell.run(1, "cat")
    common_shell.client.send(Feed(1, b"x", eof=True))
    assert await common_shell.hear(Fed) == Fed(1, open=False, refusal=NO_PIPES)


async def test_tasks_of_a_killed_host_read_the_end(shell: Shell) -> None:
    await start(shell, "cat; echo end; sleep 100")
    await shell.kill_host()
    await shell.output_holds(1, "end\n")
    shell.send(Feed(1, b"x", eof=False))
    assert (await shell.hear(Fed)).refusal == NO_PIPES
    shell.send(Signal(1, 9))
    await shell.hear(Done)


async def test_pipes_are_counted() -> None:
    inputs = JobInputs()
    assert inputs.has_room(PIPES_MAX)
    with inputs.pipe(1, 0, wanted=True), inputs.pipe(1, 1, wanted=False) as unwanted:
        assert unwanted is None
    assert inputs.has_room(PIPES_MAX - 1)
    assert not inputs.has_room(PIPES_MAX)
    inputs.end(1)
    assert inputs.has_room(PIPES_MAX)


async def test_pipe_of_a_task_that_is_not_launched_is_closed() -> None:
    inputs = JobInputs()
    with pytest.raises(FileNotFoundError), inputs.pipe(1, 0, wanted=True):
        raise FileNotFoundError
    assert inputs.has_room(PIPES_MAX)
