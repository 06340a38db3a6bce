"""Which tasks of a job have a process: asked when SIGKILL has not ended all, and by debuggers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from flux_trio.shell.protocol import Done, Identify, Processes, Signal, Survey, Survivors
from tests.support.shell import Shell, tasks_in_number, until

pytestmark = pytest.mark.real

LEAVES = """case $FLUX_TASK_RANK in
0) exec sleep 1000 ;;
1) MARKED setsid sh -c ': >$READY; exec sleep 1000' &
   until [ -e $READY ]; do sleep 0.01; done ;;
esac"""
"""Task 0 runs, task 1 has left a process, task 2 has ended."""

INNER = 'FLUX_TRIO_SHELL="$FLUX_TRIO_SHELL in.5"'
"""The mark of a process of a job in an instance that runs in the job."""


async def survivors(shell: Shell) -> list[int]:
    shell.client.send(Survey(7))
    return (await shell.hear(Survivors, 7)).tasks


@pytest.mark.parametrize(("mark", "tasks"), [("", [0, 1]), (INNER, [0, 1, 2])])
async def test_tasks_that_run_or_have_left_a_process_are_told(
    directory: Path, shell: Shell, mark: str, tasks: list[int]
) -> None:
    """A process of an inner instance has the variables of that one's job: it may be any task's."""
    ready = directory.parent / "ready"
    script = LEAVES.replace("MARKED", mark)
    shell.start(7, "sh", "-c", script, ntasks=3, env={"READY": str(ready)})
    await until(ready.exists)
    await tasks_in_number(directory, 2)
    while await survivors(shell) != tasks:  # the host may not have reaped all yet
        pass
    shell.send(Signal(7, 9))
    await shell.hear(Done, 7)


async def test_job_that_is_not_there_has_no_answer(shell: Shell) -> None:
    shell.start(7, "sleep", "1000")
    shell.client.send(Survey(8))
    assert await survivors(shell) == [0]
    shell.send(Signal(7, 9))
    await shell.hear(Done, 7)


async def test_the_processes_of_tasks_that_run_are_told_and_none_of_others(
    directory: Path, shell: Shell
) -> None:
    ends_early = "[ $FLUX_TASK_RANK = 1 ] || exec sleep 1000"
    shell.start(7, "sh", "-c", ends_early, ntasks=3)
    await tasks_in_number(directory, 2)
    told = Processes(7, "", {1: 0})
    while 1 in told.pids:  # the host may not have reaped it yet
        shell.client.send(Identify(7))
        told = await shell.hear(Processes, 7)
    assert (told.host, [*told.pids]) == (socket.gethostname(), [0, 2])
    for pid in told.pids.values():
        assert os.getpgid(pid) == pid
    shell.client.send(Identify(8))
    assert (await shell.hear(Processes, 8)).pids == {}
    shell.send(Signal(7, 9))
    await shell.hear(Done, 7)
