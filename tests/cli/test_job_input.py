"""Standard input of `run` and `job attach`, with real tasks."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.feeding import piped
from tests.support.instance import DEADLINE_S, FLUX_TRIO, RunningInstance

pytestmark = pytest.mark.real

LONG = "".join(f"{number}\n" for number in range(60_000))  # more than all pipes hold
WITH_INPUT = "-oinput.stdin.type=service"


@contextmanager
def fed(
    instance: RunningInstance, *args: str, stdin: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose standard input the test writes; it is ended."""
    command = [*FLUX_TRIO, *args]
    with subprocess.Popen(
        command, env=instance.env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def given(instance: RunningInstance, text: str, *args: str) -> subprocess.CompletedProcess[str]:
    """What a command does, in this process, with a text in a pipe as its standard input."""
    with piped(text.encode()) as pipe, pipe.open("rb") as stdin:
        return instance.call(*args, stdin=stdin)


def write_all_it_reads(process: subprocess.Popen[bytes]) -> int:
    """Write until the pipe has been full for a while; how many bytes went.

    More goes than its pipe and the task's hold, however long it takes to begin to read.
    """
    assert process.stdin is not None
    descriptor, written = process.stdin.fileno(), 0
    os.set_blocking(descriptor, False)
    pipes = 2 * fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    while (has_room := select.select([], [descriptor], [], 0.5)[1]) or written <= pipes:
        if has_room:
            written += os.write(descriptor, bytes(4096))
    return written


def test_cat_prints_the_file_that_run_reads(instance: RunningInstance, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(LONG)
    with file.open() as stdin, fed(instance, "run", "cat", stdin=stdin.fileno()) as run:
        stdout, stderr = run.communicate(timeout=DEADLINE_S)
    assert (stdout.decode() == LONG, stderr, run.returncode) == (True, b"", 0)


def test_input_goes_to_all_tasks_and_its_end_closes_it(instance: RunningInstance) -> None:
    done = given(instance, "a line\n", "run", "-n3", "sh", "-c", "cat; echo end")
    assert sorted(done.stdout.splitlines()) == ["a line"] * 3 + ["end"] * 3
    assert (done.stderr, done.returncode) == ("", 0)


def test_input_comes_as_it_is_written(instance: RunningInstance) -> None:
    with fed(instance, "run", "cat") as run:
        assert run.stdin is not None
        assert run.stdout is not None
        for line in (b"one\n", b"two\n"):
            run.stdin.write(line)
            run.stdin.flush()
            assert run.stdout.readline() == line
        run.stdin.close()
        assert run.wait(DEADLINE_S) == 0


def test_job_that_ends_without_reading_ends_the_command(instance: RunningInstance) -> None:
    with fed(instance, "run", "sh", "-c", "exit 3") as run:  # nobody closes its input
        assert run.wait(DEADLINE_S) == 3
    done = given(instance, LONG, "run", "true")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_task_that_ends_holds_up_no_other(instance: RunningInstance) -> None:
    done = given(instance, LONG, "run", "-n2", "sh", "-c", "[ $FLUX_TASK_RANK = 1 ] || cat")
    assert (done.stdout == LONG, done.stderr, done.returncode) == (True, "", 0)


def test_command_stops_reading_while_the_job_does_not(instance: RunningInstance) -> None:
    # an exit code of its own: else it is that of `wait`, which may have been interrupted
    script = "trap 'kill $!; wc -c; exit 0' USR1; sleep 100 & echo ready; wait"
    with fed(instance, "run", "sh", "-c", script) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        written = write_all_it_reads(run)
        assert written <= 4 * 65536  # two pipes, what is under way, what is being read
        run.send_signal(signal.SIGUSR1)
        stdout, _ = run.communicate(timeout=DEADLINE_S)
        assert (int(stdout), run.returncode) == (written, 0)


def test_without_input_nothing_changes(instance: RunningInstance) -> None:
    done = instance.run("run", "cat")  # /dev/null
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    spec = instance.ok("job", "info", instance.ok("job", "last").strip(), "jobspec")
    assert "stdin" not in spec
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *FLUX_TRIO, "run", "cat"],
        env=instance.env,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (closed.stdout, closed.stderr, closed.returncode) == (b"", b"", 0)


def test_terminal_is_not_read(instance: RunningInstance) -> None:
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"typed ahead\n")
        with fed(instance, "run", "cat", stdin=theirs) as run:
            assert run.communicate(timeout=DEADLINE_S) == (b"", b"")
    finally:
        os.close(ours)
        os.close(theirs)


def test_file_of_an_option_comes_first(instance: RunningInstance, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("from the file\n")
    done = given(instance, "from the pipe\n", "run", f"--input={file}", "cat")
    assert (done.stdout, done.stderr) == ("from the file\n", "")


def test_attach_sends_input_to_a_job_that_takes_it(instance: RunningInstance) -> None:
    jobid = instance.submitted(WITH_INPUT, "cat")
    done = given(instance, "hello\n", "job", "attach", jobid)
    assert (done.stdout, done.stderr, done.returncode) == ("hello\n", "", 0)


def test_attach_reads_nothing_for_a_job_that_takes_no_input(instance: RunningInstance) -> None:
    for options in (("-n1",), ("-Sexec.test.run_duration=0.2s",)):
        jobid = instance.submitted(*options, "sh", "-c", "cat; sleep 0.2")
        reader, writer = os.pipe()
        os.write(writer, b"the loop's\n")
        os.close(writer)
        with fed(instance, "job", "attach", jobid, stdin=reader) as attached:
            assert attached.communicate(timeout=DEADLINE_S) == (b"", b"")
        assert os.read(reader, 100) == b"the loop's\n"
        os.close(reader)


def test_attach_may_leave_input_to_others(instance: RunningInstance) -> None:
    jobid = instance.submitted(WITH_INPUT, "head", "-n1")
    with fed(instance, "job", "attach", "--read-only", jobid) as watching:
        assert watching.stdin is not None
        watching.stdin.write(b"unread\n")
        watching.stdin.flush()
        assert given(instance, "read\n", "job", "attach", jobid).stdout == "read\n"
        assert watching.wait(DEADLINE_S) == 0


def test_reload_ends_the_input_under_way_with_a_line(instance: RunningInstance) -> None:
    with fed(instance, "run", "sh", "-c", "echo ready; exec sleep 100") as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == b"ready\n"
        write_all_it_reads(run)
        jobid = instance.ok("job", "last").strip()
        instance.ok("module", "reload", "job-exec")
        assert ": the input ends here: " in run.stderr.readline().decode()
        assert instance.ok("jobs", "-n", "-o", "{state}", jobid) == "RUN\n"
        instance.ok("cancel", jobid)
        run.wait(DEADLINE_S)


def test_input_goes_on_after_a_reload_when_none_was_under_way(
    instance: RunningInstance, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    with fed(instance, "run", "sh", "-c", f"echo ready; exec cat > {file}") as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        instance.ok("module", "reload", "job-exec")
        deadline = time.monotonic() + DEADLINE_S
        while json.loads(instance.ok("module", "stats", "job-exec"))["jobs"]["running"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        run.communicate(b"a line\n", timeout=DEADLINE_S)
        assert (file.read_text(), run.returncode) == ("a line\n", 0)
