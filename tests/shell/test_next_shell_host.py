"""Shell hosts that start, are killed and follow one another; files that are in their way."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from flux_trio.cores.exec.vocabulary import ShellConnected, ShellFailed, ShellInput
from flux_trio.services import shell_client
from flux_trio.services.shell_client import ShellClient
from flux_trio.shell.protocol import (
    JOBS_NAME,
    LOG_NAME,
    Attach,
    Done,
    List,
    Listing,
    Signal,
    Started,
)
from flux_trio.shell.stream import socket_address
from tests.support.cancelling import cancel_at_each_step
from tests.support.leaks import descriptors
from tests.support.shell import (
    TEST_S_MAX,
    Shell,
    hosts,
    no_process_left,
    open_shell,
    tasks_in_number,
    until,
)

pytestmark = pytest.mark.real


async def test_client_that_talks_nonsense_is_cut_off_and_others_are_not(directory: Path) -> None:
    async with open_shell(directory) as shell:
        await _talk_nonsense(directory)
        assert (await shell.run(1, "true")).status == 0
    assert (
        "closed the connection of a client: expected a message"
        in (directory / "host.log").read_text()
    )


async def _talk_nonsense(directory: Path) -> None:
    """Be a client that is cut off."""
    with socket.socket(socket.AF_UNIX) as rude, socket_address(directory) as address:
        rude.connect(address)
        rude.send(b"\0\0\0\x02{}")
        with trio.fail_after(300):
            await trio.to_thread.run_sync(rude.recv, 1)


def make_log(directory: Path, target: Path) -> None:
    """Let the log of a host to come be a link."""
    directory.mkdir()
    (directory / LOG_NAME).symlink_to(target)


async def test_host_outlives_a_log_that_cannot_be_written(directory: Path) -> None:
    "A line about a client that is cut off, on a full disk, must not end the host."
    make_log(directory, Path("/dev/full"))
    async with open_shell(directory) as shell:
        before = hosts(directory)
        await _talk_nonsense(directory)
        assert (await shell.run(1, "true")).status == 0
        assert hosts(directory) == before
        shell.forget(1)


async def test_host_without_a_log_still_serves(directory: Path) -> None:
    make_log(directory, directory)  # no file can be opened there
    async with open_shell(directory) as shell:
        assert (await shell.run(1, "true")).status == 0
        shell.forget(1)


STRAYS = ["notes.record", "007.record", "-1.record", "1_0.record", "\u0663.record", "9.0.out"]


async def test_stray_file_among_the_records_stops_nothing(directory: Path) -> None:
    strays = [make_stray(directory, name) for name in STRAYS]
    async with open_shell(directory) as shell:
        assert (await shell.run(1, "echo", "here")).status == 0
        shell.send(List())
        assert (await shell.hear(Listing)).ended == [1]
        shell.forget(1)
    assert all(stray.exists() for stray in strays)


async def test_directories_in_the_place_of_records_and_output_stop_nothing(directory: Path) -> None:
    "The job whose output cannot be opened fails; its acknowledgement must not end the host."
    make_stray(directory, "5.record", is_directory=True)
    make_stray(directory, "1.0.out", is_directory=True)
    async with open_shell(directory) as shell:
        (before,) = hosts(directory)
        shell.start(1, "true")
        failure = (await shell.hear(Started, 1)).failure
        assert failure is not None
        assert "Is a directory" in failure.text
        await shell.hear(Done, 1)
        shell.forget(1)
        assert (await shell.run(2, "true")).status == 0
        shell.forget(2)
        assert hosts(directory) == [before]


async def test_fifos_in_the_place_of_records_and_output_hold_up_nobody(directory: Path) -> None:
    "Another process holds one of them open, as a reader or as a writer."
    strays = [make_stray(directory, name) for name in ("5.record", "1.0.out", "2.0.err")]
    for stray in strays:
        stray.unlink()
        os.mkfifo(stray)
    held = [os.open(stray, os.O_RDWR) for stray in strays[:2]]
    try:
        async with open_shell(directory) as shell:
            for jobid in (1, 2):
                shell.start(jobid, "true")
                failure = (await shell.hear(Started, jobid)).failure
                assert failure is not None
                assert "expected a file, got a FIFO" in failure.text
                await shell.hear(Done, jobid)
                shell.forget(jobid)
            assert (await shell.run(3, "true")).status == 0
            shell.forget(3)
    finally:
        for descriptor in held:
            os.close(descriptor)


def make_stray(directory: Path, name: str, *, is_directory: bool = False) -> Path:
    """Put a file among those of jobs."""
    path = directory / JOBS_NAME / name
    (path if is_directory else path.parent).mkdir(parents=True, exist_ok=True)
    if not is_directory:
        path.write_text("not yours")
    return path


async def test_host_that_is_killed_as_it_starts_is_started_again(directory: Path) -> None:
    "One SIGKILL may hit the command, or the daemon before it answers."
    async with trio.open_nursery() as nursery:
        shell = Shell(directory)
        nursery.start_soon(shell.client.run)
        await until(lambda: bool(hosts(directory)))
        for host in hosts(directory):
            with suppress(ProcessLookupError):
                os.kill(host, signal.SIGKILL)
        with trio.fail_after(TEST_S_MAX):
            await shell.hear(ShellConnected)
            assert (await shell.run(1, "true")).status == 0
            shell.forget(1)
        nursery.cancel_scope.cancel()


async def test_host_that_hangs_is_no_host(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    "A connection alone is no answer."
    async with open_shell(directory) as shell:
        shell.start(1, "sleep", "1000")
        await shell.hear(Started, 1)
    monkeypatch.setattr(shell_client, "SLOW_S", 1.0)  # nothing has to be started
    (host,) = hosts(directory)
    os.kill(host, signal.SIGSTOP)
    async with trio.open_nursery() as nursery:
        next_ = Shell(directory)
        nursery.start_soon(next_.client.run)
        with trio.fail_after(TEST_S_MAX):
            assert "does not answer" in (await next_.hear(ShellFailed)).reason
            os.kill(host, signal.SIGCONT)
            await next_.hear(ShellConnected)
            next_.send(Signal(1, signal.SIGKILL))
            await next_.hear(Done, 1)
            next_.forget(1)
        nursery.cancel_scope.cancel()


async def test_host_whose_start_is_slow_is_waited_for(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    "Its start waits until it may go on; nothing cuts it off, and it is begun once."
    starts, may_go_on = tmp_path / "starts", tmp_path / "go"
    os.mkfifo(may_go_on)
    slow = tmp_path / "slow" / "sitecustomize.py"
    slow.parent.mkdir()
    slow.write_text(
        f"open({str(starts)!r}, 'a').write('started\\n')\nopen({str(may_go_on)!r}).read()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(slow.parent))
    monkeypatch.setattr(shell_client, "SLOW_S", 0.2)
    async with trio.open_nursery() as nursery:
        shell = Shell(directory)
        nursery.start_soon(shell.client.run)
        with trio.fail_after(TEST_S_MAX):
            assert "is still starting after 0.2 s" in (await shell.hear(ShellFailed)).reason
            await until(starts.exists)
            await trio.sleep(3 * shell_client.SLOW_S)  # longer than any limit
            (await trio.to_thread.run_sync(may_go_on.open, "w")).close()
            await shell.hear(ShellConnected)
            assert (await shell.run(1, "true")).status == 0
            shell.forget(1)
        nursery.cancel_scope.cancel()
    assert starts.read_text() == "started\n"


async def test_connection_is_closed_wherever_a_cancel_meets_its_opening(common: Path) -> None:
    async def connect() -> None:
        connected = trio.Event()

        def hear(input_: ShellInput) -> None:
            if input_ == ShellConnected():
                connected.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ShellClient(common, hear).run)
            await connected.wait()
            nursery.cancel_scope.cancel()

    def check() -> None:
        assert descriptors() == before

    before = descriptors()
    assert await cancel_at_each_step(connect, check) > 5


async def test_start_that_is_cancelled_is_ended_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    with no_process_left(tmp_path / "shell"), trio.move_on_after(1):
        await ShellClient(tmp_path / "shell", lambda _: None).run()
    assert trio.current_time() - began == 1


async def test_path_of_any_length_will_do(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 40)
    with no_process_left(directory):
        async with open_shell(directory) as shell:
            assert (await shell.run(1, "true")).status == 0


async def test_only_one_host_runs_for_a_directory(directory: Path, shell: Shell) -> None:
    assert await shell.client._launch() == 3
    assert len(hosts(directory)) == 1


async def test_host_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shell = Shell(tmp_path / "file" / "shell")
    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.client.run)
            failed = await shell.hear(ShellFailed)
            nursery.cancel_scope.cancel()
    assert failed.reason.startswith("cannot start the shell host: ")
    assert "Not a directory" in failed.reason


# The host is killed


async def test_next_host_knows_what_had_ended(shell: Shell) -> None:
    done = await shell.run(1, "sh", "-c", "echo hi; exit 3")
    shell.start(2, "/no/such/command")
    failed = await shell.hear(Started)
    await shell.kill_host()
    assert await shell.run(1, "never") == done
    shell.send(Attach(2))
    assert await shell.hear(Started) == failed
    assert (await shell.hear(Done)).status == 32512


async def test_next_host_watches_what_still_runs(directory: Path, shell: Shell) -> None:
    shell.start(1, "sleep", "100", ntasks=2)
    await shell.hear(Started)
    await shell.kill_host()
    shell.start(1, "never")
    assert await shell.hear(Started) == Started(1)
    await tasks_in_number(directory, 2)
    shell.send(Signal(1, signal.SIGTERM))
    assert await shell.hear(Done) == Done(1, 256, 2, [0, 1])


async def test_what_ended_without_a_host_is_lost(directory: Path, shell: Shell) -> None:
    shell.start(1, "sleep", "100")
    await shell.hear(Started)
    (task,) = await tasks_in_number(directory, 1)
    (host,) = hosts(directory)
    os.kill(host, signal.SIGSTOP)
    os.kill(task, signal.SIGKILL)
    os.kill(host, signal.SIGKILL)
    await shell.hear(ShellConnected)
    shell.send(Attach(1))
    assert (await shell.hear(Done)).lost == [0]


async def test_launch_that_was_cut_short_is_not_repeated(directory: Path) -> None:
    """A start is taken at most once, even if its host died of it."""
    (directory / "jobs").mkdir(parents=True)
    (directory / "jobs" / "1.record").touch()
    async with open_shell(directory) as shell:
        assert (await shell.run(1, "echo", "again")).lost == [0]
        assert shell.output(1) == ""
