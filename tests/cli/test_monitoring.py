"""The monitor of a running instance, and its process."""

from __future__ import annotations

import io
from collections.abc import Iterable

import msgspec
import pytest
import trio

from flux_trio.cli.judge import monitor_process, monitoring
from flux_trio.cli.judge.monitor_process import REPORTED_MAX, decode_records, encode_records, watch
from flux_trio.cli.judge.monitoring import Monitoring, open_monitor
from flux_trio.config import Config, ExecConfig
from flux_trio.instance import Surroundings, open_instance
from flux_trio.judge.rules import CLASSIC
from flux_trio.messages import FluxError, Level, Request, topics
from flux_trio.sim import make_machine
from flux_trio.testing import EPOCH, USERID
from flux_trio.trace import Record, read_trace
from flux_trio.trace.record import NEAR
from tests.support.judged import edit_payload, find_all, insert, made_note
from tests.support.recorded import recording
from tests.support.scenarios import trace_of

Entry = tuple[int, str, str]


FEW = 50  # records in a frame


def frames_of(trace: list[Record]) -> bytes:
    return b"".join(encode_records(trace[at : at + FEW], 1) for at in range(0, len(trace), FEW))


def test_records_come_out_of_frames_as_they_went_in() -> None:
    trace = trace_of("everyday")
    frames = frames_of(trace)
    assert list(decode_records(io.BytesIO(frames))) == trace
    whole = (len(trace) - 1) // FEW * FEW
    assert list(decode_records(io.BytesIO(frames[:-3]))) == trace[:whole]


def test_what_was_sent_before_the_first_frame_is_whole_in_the_frame_of_its_receipt() -> None:
    trace = trace_of("everyday")
    for at in range(1, len(trace), 7):
        frame = encode_records(trace[at : at + FEW], trace[at].n)
        assert list(decode_records(io.BytesIO(frame))) == trace[at : at + FEW]


@pytest.mark.parametrize("places", [1, NEAR])
def test_a_message_is_sent_to_the_monitor_once_for_its_send_and_a_near_receipt(places: int) -> None:
    message = Request("sched.alloc", {"jobspec": "x" * 1000})
    sent = Record(5, 1.0, "send", "job-manager", "sched", 0, message)
    received = Record(5 + places, 1.0, "recv", "sched", "", 5, message)
    frames = [encode_records([each], 1) for each in (sent, received)]
    assert len(frames[1]) < 100
    first, second = decode_records(io.BytesIO(b"".join(frames)))
    assert second == received
    assert first.message is second.message


def test_a_message_is_whole_in_the_frame_of_a_late_receipt() -> None:
    message = Request("sched.alloc", {"jobspec": "x" * 1000})
    received = Record(6 + NEAR, 1.0, "recv", "sched", "", 5, message)
    assert list(decode_records(io.BytesIO(encode_records([received], 1)))) == [received]


def told(trace: Iterable[Record], edition: str = CLASSIC) -> list[str]:
    out = io.StringIO()
    watch(trace, out, edition)
    return out.getvalue().splitlines()


def test_nothing_is_told_of_a_clean_trace() -> None:
    assert told(trace_of("everyday")) == []


def test_violation_is_told_with_clause_party_text_and_place() -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[0]
    lines = told(edit_payload(trace, alloc, id="seven"))
    (line,) = [line for line in lines if line.startswith("27.alloc.2 ")]
    assert line.startswith("27.alloc.2 broken by job-manager: sched.alloc")
    assert line.endswith(f"(record {alloc.n})")


def test_clauses_are_those_of_the_edition_of_the_instance() -> None:
    """27.free.9: in the current edition sched.free has no answer, as with flux-core."""
    lines = [msgspec.json.encode(recording("01")).decode()]
    clauses = {
        edition: {line.split()[0] for line in told(read_trace(lines).records, edition)}
        for edition in (CLASSIC, "current")
    }
    assert "27.free.9" in clauses[CLASSIC] - clauses["current"]


def test_lost_service_that_breaks_no_clause_is_told() -> None:
    note = {"module": "kvs", "what": "crashed", "reason": "OSError()"}
    trace = trace_of("everyday")
    assert told(insert(trace, trace[-1], made_note("module", "broker", **note))) == [
        f"unexplained.lost-service: kvs has crashed: OSError() (record {len(trace) + 1})"
    ]


def test_clause_that_is_broken_again_and_again_does_not_flood_the_log() -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[0]
    broken = edit_payload(trace, alloc, id="seven")
    again = [broken[alloc.n - 1]] * (REPORTED_MAX + 5)
    lines = [line for line in told(again) if line.startswith("27.alloc.2")]
    assert len(lines) == REPORTED_MAX + 1
    assert lines[-1] == "27.alloc.2: further violations are not logged"


@pytest.mark.real
async def test_what_breaks_while_an_instance_runs_is_logged() -> None:
    inventory = make_machine(nnodes=1, cores_per_node=1)
    entries: list[Entry] = []
    with trio.fail_after(300):
        async with open_monitor(CLASSIC) as monitor:
            given = Surroundings(inventory, USERID, EPOCH, sinks=[monitor.append])
            config = Config(exec=ExecConfig(simulate=True))
            async with open_instance(config, given) as instance, instance.connect() as client:
                monitor.report_to(lambda *entry: entries.append(entry))
                with pytest.raises(FluxError):
                    await client.call(topics.EXEC_HELLO, {"service": 7})
    assert entries
    assert {(level, party) for level, party, _ in entries} == {(Level.ERR, "monitor")}
    assert any(text.startswith("32.hello.") for _, _, text in entries)


@pytest.fixture
def everyday() -> list[Record]:
    """Made here because a world cannot be run inside an asynchronous test."""
    return trace_of("everyday")


@pytest.mark.real
async def test_monitor_that_ends_by_itself_is_told_of_and_the_instance_goes_on(
    everyday: list[Record],
) -> None:
    entries: list[Entry] = []
    with trio.fail_after(300):
        async with open_monitor(CLASSIC) as monitor:
            monitor.report_to(lambda *entry: entries.append(entry))
            monitor._frames.append(b"\x00\x00\x00\x01\x00")  # no record
            monitor.append(everyday[0])
            await monitor.finished.wait()
            monitor.append(everyday[1])
    assert entries == [(Level.ERR, "monitor", "the monitor has ended by itself")]


def test_monitor_that_is_too_slow_is_given_up() -> None:
    slow = Monitoring(waiting_bytes_max=1000)
    for record in trace_of("everyday"):
        slow.append(record)
    entries: list[Entry] = []
    slow.report_to(lambda *entry: entries.append(entry))
    (text,) = [text for _, _, text in entries]
    assert text.startswith("the monitor is too slow for the instance and was given up at record ")


def test_the_process_is_the_module() -> None:
    assert monitoring.COMMAND[-1] == monitor_process.__name__
