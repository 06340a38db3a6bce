"""What the exec core is made of: the layout of tasks, output as RFC 24 has it, the framing."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.cores.exec.output import (
    PIECE_BYTES_MAX,
    data_pieces,
    log_begins,
    log_data,
    log_ends,
    whole_length,
)
from flux_trio.cores.exec.placement import TASKS_MAX, LayoutError, place_tasks
from flux_trio.cores.exec.tasks import start_request
from flux_trio.cores.exec.vocabulary import Chunk
from flux_trio.formats import FluidForm, Jobspec
from flux_trio.shell.protocol import (
    REQUESTS,
    Ack,
    ShellProtocolError,
    Signal,
    Start,
    Task,
    Unframer,
    frame,
)
from tests.support.exec_script import resources


def ranks_of(cores: dict[int, int], **options: Any) -> list[int]:
    jobspec = Jobspec.from_command(["true"], **options)
    return [place.rank for place in place_tasks(jobspec, resources(cores))]


@pytest.mark.parametrize(
    ("per_resource", "ranks"),
    [
        ({"type": "node"}, [0, 3]),
        ({"type": "node", "count": 2}, [0, 0, 3, 3]),
        ({"type": "core"}, [0, 3, 3]),
        ({"type": "core", "count": 2}, [0, 0, 3, 3, 3, 3]),
    ],
)
def test_there_may_be_so_many_tasks_on_each_resource(
    per_resource: dict[str, Any], ranks: list[int]
) -> None:
    attributes = {"system.shell.options.per-resource": per_resource}
    assert ranks_of({0: 1, 3: 2}, ntasks=2, attributes=attributes) == ranks


@pytest.mark.parametrize(
    "per_resource",
    [{"type": "gpu"}, {"type": "core", "count": 0}, {}, 1, {"type": "core", "count": TASKS_MAX}],
)
def test_tasks_on_each_resource_that_cannot_be_are_refused(per_resource: object) -> None:
    attributes = {"system.shell.options.per-resource": per_resource}
    with pytest.raises(LayoutError):
        ranks_of({0: 2}, attributes=attributes)


@pytest.mark.parametrize(
    ("cores", "options", "ranks"),
    [
        ({0: 1}, {}, [0]),
        ({0: 2, 1: 2}, {"ntasks": 4}, [0, 0, 1, 1]),
        ({0: 4, 5: 2}, {"ntasks": 3, "cores_per_task": 2}, [0, 0, 5]),
        ({0: 1, 1: 3}, {"ntasks": 4}, [0, 1, 1, 1]),
        ({2: 8, 3: 8}, {"nnodes": 2, "exclusive": True}, [2, 3]),
        ({0: 2, 1: 2}, {"nnodes": 2, "ntasks": 4}, [0, 0, 1, 1]),
        ({0: 2, 1: 2}, {"nnodes": 2, "ntasks": 3}, [0, 0, 1]),
    ],
)
def test_tasks_are_laid_out_on_the_ranks_of_r(
    cores: dict[int, int], options: dict[str, Any], ranks: list[int]
) -> None:
    """20.overview.6: exactly on the targets named in R."""
    assert ranks_of(cores, **options) == ranks


def test_slots_that_do_not_fit_are_refused() -> None:
    """14.submit.4."""
    with pytest.raises(LayoutError, match="room for 2 slots of 3 cores"):
        ranks_of({0: 5}, ntasks=2, cores_per_task=3)


def test_number_of_processes_is_bounded() -> None:
    jobspec = Jobspec.from_command(["true"]).to_json()
    jobspec["tasks"][0]["count"] = {"total": TASKS_MAX + 1}  # type: ignore[index]  # it is JSON
    with pytest.raises(LayoutError, match=f"at most {TASKS_MAX} tasks"):
        place_tasks(Jobspec.parse(jobspec), resources())


def test_number_of_processes_on_all_nodes_together_is_bounded() -> None:
    """Before a list of them is made: of these it would have 2 ** 31 entries."""
    each = {"type": "node", "count": 1 << 20}
    with pytest.raises(LayoutError, match=f"at most {TASKS_MAX} tasks, got {1 << 31}"):
        ranks_of(
            dict.fromkeys(range(1 << 11), 1), attributes={"system.shell.options.per-resource": each}
        )


@pytest.mark.parametrize(
    ("environment", "form", "name"),
    [({}, "f58", "ƒpP"), ({}, "f58plain", "fpP"), ({"FLUX_F58_FORCE_ASCII": "1"}, "f58", "fpP")],
)
def test_id_that_a_task_reads_has_the_form_of_the_instance_or_that_which_the_job_asks_for(
    environment: dict[str, str], form: FluidForm, name: str
) -> None:
    jobspec = Jobspec.from_command(["echo", "{{id}}", "{{jobid.f58}}"], environment=environment)
    r = resources()
    start = start_request(0xABC, jobspec, r, place_tasks(jobspec, r), {}, form)
    assert start.env["FLUX_JOB_ID"] == name
    assert start.tasks[0].argv == ["echo", name, name]


def test_task_knows_who_and_where_it_is() -> None:
    jobspec = Jobspec.from_command(["hi", "there"], ntasks=3, cwd="/w", environment={"A": "1"})
    r = resources({0: 2, 4: 1})
    start = start_request(0xABC, jobspec, r, place_tasks(jobspec, r), {"FLUX_URI": "u"})
    assert (start.argv, start.cwd) == (["hi", "there"], "/w")
    assert start.env == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "A": "1",
        "FLUX_URI": "u",
        "FLUX_JOB_ID": "ƒpP",
        "FLUX_JOB_SIZE": "3",
        "FLUX_JOB_NNODES": "2",
    }
    names = ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_TRIO_RANK", "FLUX_TRIO_HOST")
    assert [tuple(task.env[name] for name in names) for task in start.tasks] == [
        ("0", "0", "0", "node0"),
        ("1", "1", "0", "node0"),
        ("2", "0", "4", "node4"),
    ]
    assert [task.cores for task in start.tasks] == [[0, 1], [0, 1], [0]]


# Output


@given(st.text(), st.integers(0, 20))
@settings(max_examples=60)
def test_text_is_cut_between_characters_only(text: str, at: int) -> None:
    data = text.encode()[:at]
    length = whole_length(data)
    assert length >= len(data) - 3
    data[:length].decode()


@given(st.binary(max_size=40))
@settings(max_examples=60)
def test_any_bytes_come_back_from_their_pieces(data: bytes) -> None:
    found = b""
    for piece in data_pieces(Chunk(0, "stdout", 0, data)):
        is_text = "encoding" not in piece
        found += piece["data"].encode() if is_text else base64.b64decode(piece["data"])
    assert found == data


def test_long_output_is_several_pieces_of_whole_characters() -> None:
    data = ("é" * PIECE_BYTES_MAX + "!").encode()
    pieces = list(data_pieces(Chunk(3, "stderr", 0, b"x" + data)))
    assert "".join(piece["data"] for piece in pieces) == "x" + data.decode()
    assert {piece["rank"] for piece in pieces} == {"3"}
    assert len(pieces) == 3


@pytest.mark.parametrize(
    ("data", "is_text"),
    [(b"\x1b[1mbold\x1b[0m text", True), (b"\n" * 9, True), (b"\0" * 9, False), (b"\x01ab", False)],
)
def test_what_json_would_more_than_double_is_base64(data: bytes, is_text: bool) -> None:
    (piece,) = data_pieces(Chunk(0, "stdout", 0, data))
    assert ("encoding" not in piece) is is_text
    assert len(msgspec.json.encode(piece["data"])) <= 2 * len(data) + 4


def test_log_of_output_has_one_header_and_an_end_of_each_stream() -> None:
    chunk = Chunk(1, "stdout", 0, b"hi")
    events = [*log_begins(9.0, 3, {}), *log_data(9.0, [chunk]), *log_ends(9.0, 3, ["cut"])]
    header, data, log, *ends = [event.context for event in events]
    assert header == {
        "version": 1,
        "encoding": {"stdout": "UTF-8", "stderr": "UTF-8"},
        "count": {"stdout": 3, "stderr": 3},
        "options": {},
    }
    assert log == {"level": 4, "message": "cut"}
    assert [end["rank"] for end in ends if end] == ["0-2", "0-2"]
    assert data == {"stream": "stdout", "rank": "1", "data": "hi"}


# Framing

START = Start(1, ["true"], {"A": "é"}, "/", [Task(0, {}, [0])])


@given(st.lists(st.sampled_from([START, Signal(1, 9), Ack(2)]), max_size=5), st.integers(1, 60))
@settings(max_examples=40)
def test_messages_come_out_however_the_bytes_are_cut(messages: list[Any], size: int) -> None:
    data = b"".join(frame(message) for message in messages)
    unframer = Unframer(REQUESTS)
    found = [
        message
        for start in range(0, len(data), size)
        for message in unframer.feed(data[start : start + size])
    ]
    assert found == messages


def test_message_that_is_too_long_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_trio.shell.protocol.MESSAGE_BYTES_MAX", 10)
    with pytest.raises(ShellProtocolError, match="Start: expected at most 10 bytes"):
        frame(START)
    with pytest.raises(ShellProtocolError, match="at most 10 bytes, got 11"):
        Unframer(REQUESTS).feed(b"\0\0\0\x0b")


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(ShellProtocolError, match="expected a message"):
        Unframer(REQUESTS).feed(b"\0\0\0\x02{}")
