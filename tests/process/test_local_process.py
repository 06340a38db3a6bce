"""Commands of the operator, as real processes."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from flux_trio.clock import Durations
from flux_trio.process.local import Ending, open_process, run_to_end
from tests.support.cancelling import nothing_left_wherever_cancelled
from tests.support.instance import DEADLINE_S
from tests.support.leaks import children

pytestmark = pytest.mark.real

DURATIONS = Durations.of(trio.current_time)

Lines = list[tuple[str, str]]


async def run(
    script: str,
    timeout: float = math.inf,
    kill_timeout: float = 10.0,
    canceled: trio.Event | None = None,
) -> tuple[Ending, Lines]:
    """How a shell script ended, and what it printed. The line `cancel` cancels it."""
    lines: Lines = []
    cancel = trio.Event() if canceled is None else canceled

    def take(stream: str, line: str) -> None:
        lines.append((stream, line))
        if line == "cancel":
            cancel.set()

    environment = {"PATH": os.environ["PATH"], "FLUX_JOB_ID": "ƒ7"}
    with trio.fail_after(DEADLINE_S):
        async with open_process(["sh", "-c", script], environment, take) as process:
            ending = await run_to_end(process, timeout, kill_timeout, cancel, DURATIONS)
    return ending, lines


async def test_status_is_a_wait_status_and_output_comes_line_by_line():
    ending, lines = await run("echo $FLUX_JOB_ID; echo oops >&2; printf rest; exit 3")
    assert ending == Ending(status=3 << 8)
    assert sorted(lines) == [("stderr", "oops"), ("stdout", "rest"), ("stdout", "ƒ7")]


async def test_line_without_an_end_is_cut():
    _, lines = await run("head -c 2500 /dev/zero | tr '\\0' x")
    assert [len(text) for _, text in lines] == [1000, 1000, 500]


async def test_signal_reaches_what_the_command_has_started():
    ending, _ = await run("sleep 1000 & wait", timeout=0.2)
    assert ending == Ending(status=signal.SIGTERM, timed_out=True)


async def test_deaf_process_is_killed():
    script = "trap '' TERM; echo cancel; sleep 1000 & wait; sleep 1000"
    ending, _ = await run(script, kill_timeout=0.2)
    assert ending == Ending(status=signal.SIGKILL, canceled=True, killed=True)


async def test_process_that_is_deaf_from_its_start_is_killed_after_its_time():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # its children inherit that
    try:
        ending, _ = await run("sleep 1000 & wait; sleep 1000", 0.2, kill_timeout=0.2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ending == Ending(status=signal.SIGKILL, timed_out=True, killed=True)


async def test_canceled_process_ends():
    canceled = trio.Event()
    canceled.set()
    ending, _ = await run("sleep 1000", canceled=canceled)
    assert ending == Ending(status=signal.SIGTERM, canceled=True)


async def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path):
    pidfile = tmp_path / "pid"
    ending, _ = await run(f"sleep 1000 & echo $! > {pidfile}")
    assert ending.status == 0
    await _gone(int(pidfile.read_text()))


DAEMON = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(1000)"


async def test_what_a_command_has_put_into_another_session_ends_when_the_command_is_ended():
    pids: list[int] = []
    canceled = trio.Event()

    def take(_stream: str, line: str) -> None:
        pids.append(int(line))
        canceled.set()

    script = f"{sys.executable} -c '{DAEMON}' & wait"
    with trio.fail_after(DEADLINE_S):
        async with open_process(["sh", "-c", script], os.environ, take) as process:
            await run_to_end(process, math.inf, 10.0, canceled, DURATIONS)
        await _gone(pids[0])


async def test_daemon_of_a_command_that_ends_by_itself_stays(tmp_path: Path):
    said = tmp_path / "said"
    daemon = f"{sys.executable} -c '{DAEMON}' >{said} 2>&1 &"
    ending, lines = await run(f"mkfifo {said}; {daemon} read pid <{said}; echo $pid")
    assert ending == Ending()
    pid = int(lines[0][1])
    assert _is_there(pid)
    os.kill(pid, signal.SIGKILL)
    await _gone(pid)


async def test_process_ends_with_the_block_that_has_it(tmp_path: Path):
    before = children()
    with trio.move_on_after(0.2):
        await run("sleep 1000")
    assert children() == before


async def test_command_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError):
        async with open_process(["/no/such/command"], {}, lambda *_: None):
            pass


async def _gone(pid: int) -> None:
    """A killed process whose parent is gone is reaped by init soon."""
    with trio.fail_after(DEADLINE_S):
        while _is_there(pid):  # noqa: ASYNC110 - the kernel does not tell
            await trio.sleep(0.01)


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_command_that_is_cancelled_at_any_moment_is_gone():
    async def run_one() -> None:
        await run("echo a; exec sleep 0.01")

    assert await nothing_left_wherever_cancelled(run_one) > 5
