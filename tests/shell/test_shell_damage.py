"""Files of the shell host that were changed while it did not run, or behind its back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flux_trio.shell.outputs import AT_ONCE_BYTES_MAX
from flux_trio.shell.protocol import Attach, Done, TaskSize
from flux_trio.shell.records import (
    Accepted,
    Ended,
    Failed,
    FileSum,
    Launched,
    Line,
    Written,
    encode_record,
    parse_record,
)
from tests.support.shell import Shell, no_process_left, open_shell

STATUS_LOST = 256

LINES: list[Line] = [
    Accepted(2),
    Launched(0, 70, 800, "/c", 1),
    Failed(1, 127 << 8, "no such command"),
    Ended(0, 1280),
    Written([FileSum(0, "stdout", 3, 77)]),
]


# A record, line by line


def test_record_is_read_as_it_was_written() -> None:
    data = encode_record(7, LINES)
    assert parse_record(7, data).lines == LINES
    assert parse_record(7, data).problem == ""
    assert parse_record(7, data).size == len(data)


def test_each_flipped_bit_is_noticed() -> None:
    data = encode_record(7, LINES)
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            found = parse_record(7, bytes(changed))
            assert found.lines == LINES[: len(found.lines)]
            assert found.problem or len(found.lines) < len(LINES)


@pytest.mark.parametrize(
    ("order", "whole"),
    [
        ((1, 2, 3, 4), 0),  # the first line is missing
        ((0, 1, 3, 4), 2),  # one in the middle is
        ((0, 1, 1, 2, 3, 4), 2),  # one is there twice
        ((0, 1, 3, 2, 4), 2),  # two are swapped
    ],
)
def test_line_that_is_not_in_its_place_is_noticed(order: tuple[int, ...], whole: int) -> None:
    lines = encode_record(7, LINES).splitlines(keepends=True)
    found = parse_record(7, b"".join(lines[place] for place in order))
    assert found.lines == LINES[:whole]
    assert found.problem.startswith(f"line {whole + 1}: expected the checksum ")


def test_record_of_another_job_is_noticed() -> None:
    found = parse_record(8, encode_record(7, LINES))
    assert found.lines == []
    assert found.problem.startswith("line 1: expected the checksum ")


def test_last_line_that_was_cut_off_counts_as_never_written() -> None:
    data = encode_record(7, LINES)
    found = parse_record(7, data[:-1])
    assert (found.lines, found.problem) == (LINES[:-1], "")
    assert found.size == data[:-1].rindex(b"\n") + 1


# A host


Change = Callable[[bytes], bytes]


async def end_after(directory: Path, script: str, name: str, change: Change) -> Done:
    """The end of job 1, as the next host tells it after a change of the file `name`."""
    async with open_shell(directory) as shell:
        await shell.run(1, "sh", "-c", script)
    path = directory / "jobs" / name
    with no_process_left(directory):
        before = path.read_bytes()
        path.write_bytes(change(before))
        assert path.read_bytes() != before
    async with open_shell(directory) as shell:
        shell.send(Attach(1))
        done = await shell.hear(Done, 1)
        shell.forget(1)
    return done


@pytest.mark.real
async def test_status_that_was_changed_is_lost_and_the_file_is_named(directory: Path) -> None:
    def change(data: bytes) -> bytes:
        return data.replace(b'["ended",0,1280]', b'["ended",0,0]')

    done = await end_after(directory, "exit 5", "1.record", change)
    assert (done.status, done.lost) == (STATUS_LOST, [0])
    (damage,) = done.damage
    assert damage.startswith(f"{directory}/jobs/1.record: line 3: expected the checksum ")


@pytest.mark.real
@pytest.mark.parametrize("nbytes", [3, AT_ONCE_BYTES_MAX + 1])
async def test_flipped_byte_of_output_is_noticed(directory: Path, nbytes: int) -> None:
    def change(data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1])

    script = f"head -c {nbytes} /dev/zero"
    done = await end_after(directory, script, "1.0.out", change)
    assert (done.status, done.sizes) == (0, [TaskSize(0, nbytes, 0)])
    (damage,) = done.damage
    assert damage.startswith(f"{directory}/jobs/1.0.out: expected the checksum ")


@pytest.mark.real
async def test_output_that_is_shorter_than_it_was_is_noticed(directory: Path) -> None:
    done = await end_after(directory, "echo hi >&2", "1.0.err", lambda data: data[:-1])
    assert done.damage == [f"{directory}/jobs/1.0.err: expected 3 bytes, got 2"]


@pytest.mark.real
async def test_file_that_was_changed_beside_a_host_that_runs_is_noticed(
    directory: Path, shell: Shell
) -> None:
    assert (await shell.run(1, "echo", "hi")).damage == []
    shell.send(Attach(1))
    assert (await shell.hear(Done, 1)).damage == []
    (directory / "jobs" / "1.0.out").write_text("ho\n")
    shell.send(Attach(1))
    assert len((await shell.hear(Done, 1)).damage) == 1
    shell.forget(1)


@pytest.mark.real
async def test_next_host_goes_on_where_a_line_was_cut_off(directory: Path) -> None:
    (directory / "jobs").mkdir(parents=True)
    record = directory / "jobs" / "1.record"
    whole = encode_record(1, [Accepted(2), Ended(0, 512)])
    record.write_bytes(whole + b'["end')
    async with open_shell(directory) as shell:
        shell.send(Attach(1))
        done = await shell.hear(Done, 1)
        assert (done.status, done.lost, done.damage) == (512, [1], [])
        found = parse_record(1, record.read_bytes())
        assert found.lines == [Accepted(2), Ended(0, 512), Ended(1, None), Written([])]
        assert found.problem == ""
        shell.forget(1)
