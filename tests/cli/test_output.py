"""Output of jobs, with real tasks: any content and size, readers that pause, what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from flux_trio.client import find_instance, open_client
from flux_trio.formats import job_key, parse_fluid
from flux_trio.messages import topics
from tests.support.instance import DEADLINE_S, RunningInstance, running_instance

pytestmark = pytest.mark.real

LONG = 70_000_000  # bytes: more than may wait for a connection
CREDITED = 20_000_000  # bytes: several times what a stream has credit for


def writes(nbytes: int) -> str:
    return f"head -c {nbytes} /dev/zero | tr '\\0' x"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Not judged: that would take longer than to write and read so much output."""
    with running_instance(tmp_path_factory.mktemp("instance"), judged=False) as running:
        yield running


def ended(instance: RunningInstance, jobid: str) -> str:
    """The state of a job that is over, once it is."""
    instance.invoke("job", "status", jobid)
    return instance.ok("jobs", "-n", "-o", "{state} {result}", jobid).strip()


def test_output_of_any_content_is_kept_whole_and_harms_no_neighbour(
    instance: RunningInstance,
) -> None:
    zeros = instance.submitted("head", "-c", "3000000", "/dev/zero")
    quiet = [instance.submitted("echo", "hello") for _ in range(10)]
    assert ended(instance, zeros) == "INACTIVE COMPLETED"
    assert instance.invoke("job", "attach", zeros).stdout_bytes == bytes(3_000_000)
    for jobid in quiet:
        assert ended(instance, jobid) == "INACTIVE COMPLETED"
        assert instance.ok("job", "attach", jobid) == "hello\n"


def test_long_output_is_read_by_all_commands_piece_by_piece(instance: RunningInstance) -> None:
    jobid = instance.submitted("seq", "300000")
    assert ended(instance, jobid) == "INACTIVE COMPLETED"
    wanted = "".join(f"{n}\n" for n in range(1, 300_001))
    for command in (
        ["job", "info", jobid, "guest.output"],
        ["job", "eventlog", "-fjson", "-poutput", jobid],
    ):
        events = [json.loads(line) for line in instance.ok(*command).split("\n") if line]
        data = [event["context"].get("data", "") for event in events if event["name"] == "data"]
        assert "".join(data) == wanted
    assert instance.ok("job", "attach", jobid) == wanted


def test_slow_reader_is_waited_for(instance: RunningInstance) -> None:
    run = instance.popen("run", "-v", "sh", "-c", writes(LONG))
    assert run.stdout is not None
    assert run.stderr is not None
    jobid = run.stderr.readline().split()[-1]
    assert os.read(run.stdout.fileno(), 1) == b"x"
    assert ended(instance, jobid) == "INACTIVE COMPLETED"
    out, err = run.communicate(timeout=DEADLINE_S)
    assert (len(out), err, run.returncode) == (LONG - 1, "", 0)


def test_other_calls_of_a_connection_go_on_while_a_reader_of_it_pauses(
    instance: RunningInstance,
) -> None:
    jobid = parse_fluid(instance.submitted("sh", "-c", writes(CREDITED)))

    async def read() -> int:
        async with (
            open_client(*find_instance(instance.env)) as client,
            aclosing(client.job(jobid).output()) as pieces,
        ):
            count = len((await anext(pieces)).data)
            state = {}
            while state.get("result") is None:  # the reader pauses, and asks something else
                state = (await client.call(topics.LIST_ID, {"id": jobid}))["job"]
            assert (
                client.statistics().bytes_received < CREDITED // 2
            )  # the rest waits at its source
            async for piece in pieces:
                count += len(piece.data)
            return count

    assert anyio.run(read) == CREDITED


def test_output_goes_on_after_a_reload_of_the_execution_service(
    instance: RunningInstance, tmp_path: Path
) -> None:
    go_on = tmp_path / "go"
    script = f"echo one; until [ -e {go_on} ]; do sleep 0.01; done; echo two"
    run = instance.popen("run", "sh", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline() == "one\n"
    instance.ok("module", "reload", "job-exec")
    go_on.touch()
    assert run.communicate(timeout=DEADLINE_S) == ("two\n", "")
    assert run.returncode == 0


@pytest.mark.parametrize("command", [["job", "attach"], ["watch"]])
def test_output_of_a_job_that_is_over_needs_no_execution_service(
    instance: RunningInstance, command: list[str]
) -> None:
    jobid = instance.submitted("echo", "hello")
    assert ended(instance, jobid) == "INACTIVE COMPLETED"
    instance.ok("module", "remove", "job-exec")
    try:
        done = instance.invoke(*command, jobid)
    finally:
        instance.ok("module", "load", "job-exec")
    assert (done.stdout, done.exit_code) == ("hello\n", 0)


@pytest.mark.parametrize("command", [["job", "attach"], ["watch"]])
@pytest.mark.parametrize(
    "damage", ["no event\n", '{"timestamp":1.0,"name":"data","context":{"data":7}}\n']
)
def test_output_that_is_damaged_is_an_error_exit(
    instance: RunningInstance, command: list[str], damage: str
) -> None:
    jobid = instance.submitted("echo", "hello")
    assert ended(instance, jobid) == "INACTIVE COMPLETED"

    async def harm() -> None:
        async with open_client(*find_instance(instance.env)) as client:
            key = job_key(parse_fluid(jobid), "guest.output")
            await client.call(topics.KVS_COMMIT, {"ops": [["put", key, damage]]})

    anyio.run(harm)
    done = instance.invoke(*command, jobid)
    assert (done.stdout, done.exit_code) == ("", 1)
    assert f"ERROR: the output ends here: job {jobid}: output: " in done.stderr


def test_what_the_limit_cuts_off_is_noted_and_the_job_is_well(instance: RunningInstance) -> None:
    jobid = instance.submitted("-ooutput.limit=10", "sh", "-c", "echo 0123456789abc")
    assert ended(instance, jobid) == "INACTIVE COMPLETED"
    done = instance.invoke("job", "attach", jobid)
    assert (done.stdout, done.exit_code) == ("0123456789", 0)
    note = "flux-trio job attach: stdout: 4 of 14 bytes truncated\n"
    assert done.stderr == note
