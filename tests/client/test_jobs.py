"""Jobs of programs: awaited, in a thread that waits, and as futures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from queue import Queue

import anyio
import pytest

from flux_trio.client import (
    ConnectionLost,
    FluxTrioExecutor,
    FluxTrioFuture,
    JobFailed,
    NoInstance,
    command_jobspec,
    connect,
    open_client,
)
from flux_trio.formats import Jobspec
from flux_trio.messages import FluxError
from flux_trio.protocols import JobResult, JobState
from tests.support.instance import DEADLINE_S, OWN_VARIABLES, RunningInstance, running_instance

pytestmark = pytest.mark.real

SAMPLES = Path(__file__).parents[2] / "docs" / "howto" / "client"
SLEEP = ["sleep", "1000"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    with running_instance(tmp_path_factory.mktemp("instance")) as running:
        yield running


@pytest.fixture(autouse=True)
def instance(running: RunningInstance, monkeypatch: pytest.MonkeyPatch) -> RunningInstance:
    """The instance that programs of this process find."""
    for name in OWN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLUX_TRIO_STATEDIR", str(running.statedir))
    return running


@pytest.fixture
def executor() -> Iterator[FluxTrioExecutor]:
    with FluxTrioExecutor() as executor:
        yield executor


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_job_is_followed_to_its_end(instance: RunningInstance, backend: str) -> None:
    async def main() -> None:
        with anyio.fail_after(DEADLINE_S):
            async with open_client(f"unix://{instance.statedir / 'local'}") as client:
                job = await client.submit(command_jobspec(["sh", "-c", "echo out; exit 3"]))
                pieces = [piece async for piece in job.output()]
                assert b"".join(each.data for each in pieces) == b"out\n"
                result = await job.wait()
                assert (result.success, result.returncode, result.exception) == (False, 3, None)
                assert await job.result() == 3
                assert await job.state() == "INACTIVE"
                names = [event.name async for event in job.events()]
                assert (names[0], names[-1]) == ("submit", "clean")
                again = client.job(str(job))
                assert (again.id, await again.info()) == (job.id, await job.info())

    anyio.run(main, backend=backend)


def test_a_job_that_an_exception_ends_has_no_exit_code() -> None:
    with connect() as client:
        job = client.submit(command_jobspec(SLEEP))
        assert [each["id"] for each in client.jobs(states=JobState.RUN | JobState.SCHED)] == [
            job.id
        ]
        job.cancel("enough")
        result = job.wait()
        assert result.exception is not None
        assert (result.success, result.exception["type"]) == (False, "cancel")
        with pytest.raises(JobFailed, match="exception cancel: enough"):
            job.result()
        canceled = client.jobs(states=JobState.INACTIVE, results=JobResult.CANCELED, limit=1)
        assert canceled[0]["id"] == job.id


def test_a_job_that_never_starts_has_no_output() -> None:
    with connect() as client:
        job = client.submit(Jobspec.from_command(SLEEP), urgency=0)
        job.cancel()
        assert list(job.output()) == []
        with pytest.raises(FluxError, match="unknown job"):
            client.job(1).cancel()


def test_a_loop_over_events_may_be_left() -> None:
    with connect() as client:
        job = client.submit(command_jobspec(SLEEP))
        for event in job.events():
            if event.name == "start":
                break
        job.kill(9)
        assert job.wait().returncode == 128 + 9


def test_commands_and_functions_are_futures(executor: FluxTrioExecutor) -> None:
    codes = [executor.submit(["sh", "-c", f"exit {code}"]) for code in range(3)]
    absolute = executor.submit(abs, -7)
    failing = executor.submit(divmod, 1, 0)
    assert [each.result(DEADLINE_S) for each in codes] == [0, 1, 2]
    assert absolute.result(DEADLINE_S) == 7
    assert isinstance(failing.exception(DEADLINE_S), ZeroDivisionError)


def test_a_future_tells_of_its_job(executor: FluxTrioExecutor, instance: RunningInstance) -> None:
    told, is_over = [], threading.Event()
    future = executor.submit(Jobspec.from_command(["true"], cwd="/"), urgency=20)
    future.add_jobid_callback(lambda each: told.append(each.jobid()))
    future.add_event_callback("start", lambda _, event: told.append(event.name))
    future.add_event_callback("start", lambda *_: 1 / 0)  # logged, and no more
    future.add_event_callback("clean", lambda *_: is_over.set())
    assert future.result(DEADLINE_S) == 0
    assert is_over.wait(DEADLINE_S)
    future.add_event_callback("start", lambda *_: told.append("again"))
    assert sorted(map(str, told)) == sorted(map(str, [future.jobid(0), "start", "again"]))
    assert executor.attach(future.jobid()).result(DEADLINE_S) == 0
    assert '"urgency":20' in instance.ok("job", "eventlog", str(future.jobid()), "-f", "json")


def test_what_is_refused_or_cannot_be_passed_on_is_an_error(executor: FluxTrioExecutor) -> None:
    refused = executor.submit({"version": 1})
    assert isinstance(refused.exception(DEADLINE_S), FluxError)
    with pytest.raises(FluxError):
        refused.jobid()
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        executor.submit(lambda: 1)
    with pytest.raises(JobFailed, match="ended with exit code 3, before the function returned"):
        executor.submit(os._exit, 3).result(DEADLINE_S)
    missing = executor.submit(["/nonexistent/command"])
    with pytest.raises(JobFailed, match="No such file"):
        missing.result(DEADLINE_S)


UNREADABLE = """
from flux_trio.client import FluxTrioExecutor

class Failed(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")

class Unreadable:
    def __reduce__(self):
        return Failed, ("too few",)

class Mine(Exception):
    pass

def fail():
    raise Failed(4, "no input")

def make():
    return lambda: 0

def raise_mine():
    raise Mine("here")

if __name__ == "__main__":
    with FluxTrioExecutor() as executor:
        for work in ([fail], [make], [abs, Unreadable()], [raise_mine]):
            error = executor.submit(*work).exception(60)
            print(type(error).__name__, str(error).partition(": ")[2] or error)
            print(type(error.__cause__).__name__)
        print(executor.submit(abs, -1).result(60))
"""


def test_what_a_function_raised_or_returned_is_told_if_it_cannot_be_brought_here(
    tmp_path: Path,
) -> None:
    file = tmp_path / "program.py"
    file.write_text(UNREADABLE)
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    said = done.stdout.splitlines()
    wrong = "TypeError: Failed.__init__() missing 1 required positional argument: 'reason'"
    unread = f"the function raised Failed: 4: no input, which cannot be unpickled: {wrong}"
    assert said[:2] == [f"ResultUnreadable {unread}", "TypeError"]
    unpickled = "ResultUnreadable the function returned a value, which cannot be pickled: "
    assert said[2].startswith(unpickled)
    assert said[4:6] == [
        f"ResultUnreadable the function cannot be read where it runs: {wrong}",
        "NoneType",
    ]
    assert said[6:] == ["Mine here", "NoneType", "1"]


def test_a_command_that_is_one_text_is_refused_before_there_is_a_job(
    executor: FluxTrioExecutor,
) -> None:
    with pytest.raises(TypeError, match='expected a list of words, got the text "hostname"'):
        executor.submit("hostname")


def test_a_client_that_was_inherited_over_fork_says_so() -> None:
    text = """
import os, sys
def say(function, *given):
    try:
        function(*given)
    except Exception as error:
        print(type(error).__name__, "of which this one is a fork" in str(error), flush=True)
client, executor = connect(), FluxTrioExecutor()
job = client.submit(command_jobspec(["true"]))
done, waits = executor.submit(["true"]), executor.submit(["sleep", "1000"])
done.result(), waits.jobid()
held = executor.attach(client.submit(command_jobspec(["true"]), urgency=0).id)
if child := os.fork():
    print(os.waitpid(child, 0)[1], executor.submit(abs, -1).result(), job.result())
    client.job(waits.jobid()).cancel()
    client.job(held.jobid()).cancel()
    executor.shutdown()
else:
    say(client.call, "broker.info")
    say(job.state)
    say(executor.submit, ["true"])
    for future in waits, held:
        say(future.result)
        say(future.exception)
    print(done.result(), waits.jobid(), flush=True)
    os._exit(0)  # as processes of multiprocessing do
"""
    with program(text) as running:
        out, err = running.communicate(timeout=DEADLINE_S)
    *said, known, parent = out.splitlines()
    assert (said, parent) == (["ConnectionLost True"] * 7, "0 1 0"), err
    assert known.split()[0] == "0", "what had ended before is known"


def test_a_future_is_cancelled_before_its_job_is_submitted() -> None:
    with FluxTrioExecutor(jobs_max=1) as executor:
        first = executor.submit(SLEEP)
        second = executor.submit(["true"])
        jobid = first.jobid(DEADLINE_S)
        assert not first.cancel()
        assert second.cancel()
        with pytest.raises(CancelledError):
            second.jobid(DEADLINE_S)
        with connect() as client:
            client.job(jobid).cancel()
        with pytest.raises(JobFailed, match="exception cancel"):
            first.result(DEADLINE_S)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(["true"])


def test_shutdown_may_cancel_what_is_not_submitted() -> None:
    executor = FluxTrioExecutor(jobs_max=1)
    first = executor.submit(["sleep", "0.2"])
    first.jobid(DEADLINE_S)
    others = [executor.submit(["true"]) for _ in range(3)]
    executor.shutdown(cancel_futures=True)
    assert first.result(0) == 0
    assert all(each.cancelled() for each in others)


def test_without_an_instance_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_TRIO_STATEDIR", str(tmp_path))
    with pytest.raises(NoInstance):
        FluxTrioExecutor()
    with pytest.raises(NoInstance):
        connect()


def test_a_client_is_connected_while_it_or_a_job_is_used() -> None:
    assert connect().submit(command_jobspec(["true"])).result() == 0
    client = connect()
    job = client.submit(command_jobspec(SLEEP))
    job.cancel()
    events = job.events()
    assert next(events).name == "submit"
    client.close()
    client.close()
    events.close()
    with pytest.raises(ConnectionLost, match="this client is closed"):
        job.wait()


def test_jobs_end_while_others_are_submitted_also_by_callbacks(executor: FluxTrioExecutor) -> None:
    """Neither waits for the other's thread."""
    second: Queue[FluxTrioFuture] = Queue()
    futures = [executor.submit(["true"]) for _ in range(100)]
    futures[0].add_done_callback(lambda _: second.put(executor.submit(["sh", "-c", "exit 4"])))
    assert {each.result(DEADLINE_S) for each in futures} == {0}
    assert second.get(timeout=DEADLINE_S).result(DEADLINE_S) == 4


PROGRAM = """
import sys
from flux_trio.client import FluxTrioExecutor, command_jobspec, connect
"""


def program(text: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM + text]
    pipes = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipes, stderr=pipes, text=True)


def test_a_client_is_closed_in_order_at_the_end_of_the_program(instance: RunningInstance) -> None:
    text = "client = connect()\nprint(client.call('broker.info')['statedir'])"
    with program(text) as running:
        out, err = running.communicate(timeout=DEADLINE_S)
    assert (out, err, running.returncode) == (f"{instance.statedir}\n", "", 0)
    assert "connection lost" not in instance.ok("dmesg")


def test_a_loop_over_output_is_ended_by_an_interrupt() -> None:
    text = """
job = connect().submit(command_jobspec(["sh", "-c", "echo ready; exec sleep 1000"]))
for piece in job.output():
    print(job, flush=True)
"""
    with program(text) as running:
        assert running.stdout is not None
        jobid = running.stdout.readline().strip()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=DEADLINE_S)
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    with connect() as client:
        client.job(jobid).cancel()


def test_a_program_that_ends_without_shutdown_waits_for_its_futures() -> None:
    text = """
executor = FluxTrioExecutor()
executor.submit(max, 3, 4).add_done_callback(lambda future: print(future.result()))
"""
    with program(text) as running:
        assert running.communicate(timeout=DEADLINE_S) == ("4\n", "")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("follow.py", ["exit code 3", "['free', 'clean']", "0 jobs are active"]),
        pytest.param("futures.py", ["an exception came", "[0, 1, 4]"], marks=pytest.mark.gate),
    ],
)
def test_the_samples_do_what_they_say(name: str, lines: list[str]) -> None:
    command = [sys.executable, str(SAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert [line for line in lines if line not in done.stdout.splitlines()] == []
