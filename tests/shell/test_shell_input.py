"""Standard input of the shell host's tasks, with real processes."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

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


async def test_job_whose_tasks_have_ended_reads_no_more(common_shell: Shell) -> None:
    """Its end may be on its way to the client: that is no error of the input."""
    await start(common_shell, "true")
    await common_shell.hear(Done)
    common_shell.client.send(Feed(1, b"late", eof=True))
    assert await common_shell.hear(Fed) == Fed(1, open=False)
    common_shell.forget(1)


async def test_job_without_pipes_cannot_be_fed(common_shell: Shell) -> None:
    common_shell.start(1, "sleep", "100")
    await common_shell.hear(Started)
    common_shell.client.send(Feed(1, b"x", eof=True))
    assert await common_shell.hear(Fed) == Fed(1, open=False, refusal=NO_PIPES)
    common_shell.send(Signal(1, 9))
    await common_shell.hear(Done)


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


@pytest.mark.parametrize("seed", range(20))
async def test_writes_of_several_connections_do_not_mix_and_one_that_is_lost_leaves_a_prefix(
    seed: int,
) -> None:
    """The task reads slowly; a connection is lost in the middle of a write, the next one writes."""
    rng = Random(seed)
    inputs = JobInputs()
    read = bytearray()
    with inputs.pipe(1, 0, wanted=True) as reader:
        assert reader is not None
        task = trio.lowlevel.FdStream(os.dup(reader))
    feeds = [bytes([number]) * rng.choice([1, 100, 3 * PIPE_BYTES]) for number in range(1, 6)]
    lost = rng.sample(range(5), 2)
    scopes = [trio.CancelScope() for _ in feeds]
    to_lose = list(lost)

    async def feed(number: int) -> None:
        with scopes[number]:
            await inputs.feed(Feed(1, feeds[number], eof=False))

    async def read_slowly() -> None:
        while data := await task.receive_some(rng.choice([7, PIPE_BYTES])):
            read.extend(data)
            if to_lose and rng.random() < 0.3:
                scopes[to_lose.pop()].cancel()

    async with task, trio.open_nursery() as reading:
        async with trio.open_nursery() as feeding:
            for number in range(len(feeds)):
                feeding.start_soon(feed, number)
                await trio.testing.wait_all_tasks_blocked()
            reading.start_soon(read_slowly)
        inputs.end(1)
    rest = bytes(read)
    for number, data in enumerate(feeds):
        prefix = rest[: len(rest) - len(rest.lstrip(data[:1]))]
        assert len(prefix) <= len(data)
        assert number in lost or len(prefix) == len(data)
        rest = rest[len(prefix) :]
    assert rest == b"", "writes have mixed"


async def test_input_may_be_for_some_tasks_and_end_for_them(common_shell: Shell) -> None:
    common_shell.start(2, "cat", ntasks=3, input=True)
    common_shell.client.send(Feed(2, b"some\n", True, [0, 2]))
    assert (await common_shell.hear(Fed, 2)).open
    common_shell.client.send(Feed(2, b"rest\n", True))
    assert not (await common_shell.hear(Fed, 2)).open
    await common_shell.hear(Done, 2)
    assert [common_shell.output(2, taskid) for taskid in range(3)] == ["some\n", "rest\n", "some\n"]
    common_shell.forget(2)
