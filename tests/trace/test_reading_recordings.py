"""Recordings of flux-core, read as a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flux_trio.formats import FormatError
from flux_trio.messages import Request, Response
from flux_trio.trace import Receipts, Record, Shown, read_trace, record_to_json, records_to_json

ROUTER = Shown(crossings=False, headers=False)


def read(text: str) -> list[Record]:
    return list(read_trace(text.splitlines(keepends=True)).records)


def message(t: float, from_: str, to: str, type_: str, topic: str, **more: Any) -> dict[str, Any]:
    found = {"t_rel": t, "from": from_, "to": to, "type": type_, "topic": topic, "errnum": 0}
    return {**found, "payload": None, **more}


def recording(*messages: dict[str, Any], events: tuple[tuple[float, str], ...] = ()) -> str:
    eventlog = [{"t_rel": t, "name": name, "context": {}} for t, name in events]
    jobs = [{"id": 1, "label": "A", "eventlog": eventlog}]
    return json.dumps({"name": "x", "messages": messages, "jobs": jobs}, indent=1)


def test_message_of_a_recording_is_sent_and_at_once_received() -> None:
    text = recording(
        message(0.5, "job-manager", "sched", "request", "sched.alloc", payload={"id": 1}),
        message(0.6, "sched", "job-manager", "response", "sched.alloc", errnum=38, errstr="no"),
    )
    source = read_trace(text.splitlines(keepends=True))
    assert (source.form, source.shown) == ("recording of messages", ROUTER)
    request = Request("sched.alloc", {"id": 1}, routes=("job-manager",))
    response = Response("sched.alloc", "no", 38, routes=("job-manager",))
    assert list(source.records) == [
        Record(1, 0.5, "send", "job-manager", "sched", 0, request),
        Record(2, 0.5, "recv", "sched", "job-manager", 1, request),
        Record(3, 0.6, "send", "sched", "job-manager", 0, response),
        Record(4, 0.6, "recv", "job-manager", "sched", 3, response),
    ]


def order(records: list[Record]) -> list[str]:
    found = [r.message.topic if r.message else r.data["name"] for r in records if r.kind != "recv"]
    return [str(each) for each in found]


def test_event_stands_before_what_the_job_manager_sent_when_the_stamps_are_that_close() -> None:
    alloc = message(1.000, "job-manager", "sched", "request", "sched.alloc", payload={"id": 1})
    assert order(read(recording(alloc, events=((1.004, "priority"),)))) == [
        "priority",
        "sched.alloc",
    ]
    assert order(read(recording(alloc, events=((1.4, "exception"),)))) == [
        "sched.alloc",
        "exception",
    ]


def test_event_stands_behind_what_the_job_manager_was_told_of_the_job() -> None:
    granted = message(1.000, "sched", "job-manager", "response", "sched.alloc", payload={"id": 1})
    other = message(1.001, "exec", "job-manager", "response", "exec.start", payload={"id": 2})
    start = message(1.002, "job-manager", "exec", "request", "exec.start", payload={"id": 1})
    text = recording(granted, other, start, events=((1.003, "alloc"),))
    assert order(read(text)) == ["sched.alloc", "alloc", "exec.start", "exec.start"]


def test_module_that_falls_silent_is_who_a_disconnect_is_about() -> None:
    hello = message(1.0, "sched", "job-manager", "request", "job-manager.sched-hello")
    exec_hello = message(1.1, "exec", "job-manager", "request", "job-manager.exec-hello")
    gone = message(2.0, "broker", "job-manager", "request", "job-manager.disconnect")
    alive = message(3.0, "exec", "job-manager", "response", "exec.start")
    again = message(4.0, "sched", "job-manager", "request", "job-manager.sched-hello")
    records = read(recording(hello, exec_hello, gone, alive, again))
    (told,) = [r for r in records if r.kind == "recv" and r.peer == "broker"]
    assert isinstance(told.message, Request)
    assert told.message.sender == "sched"


def test_disconnect_of_several_that_are_silent_is_of_the_one_told_to_shut_down() -> None:
    hello = message(1.0, "sched", "job-manager", "request", "job-manager.sched-hello")
    exec_hello = message(1.1, "exec", "job-manager", "request", "job-manager.exec-hello")
    gone = message(2.0, "broker", "job-manager", "request", "job-manager.disconnect")
    told = message(1.9, "broker", "exec", "request", "exec.shutdown")
    senders = [
        r.message.sender
        for r in read(recording(hello, exec_hello, told, gone))
        if isinstance(r.message, Request) and r.message.topic == "job-manager.disconnect"
    ]
    assert senders == ["exec", "exec"]
    text = recording(hello, exec_hello, gone)
    senders = [r.message.sender for r in read(text) if r.peer == "job-manager" and r.message]
    assert senders[-1] == "broker"  # nobody can tell


def test_message_of_a_recording_that_is_none_is_named() -> None:
    wrong = message(1.0, "a", "b", "question", "c.d")
    expected = r"^messages\[0\].type: expected request, response or event, got \"question\"$"
    with pytest.raises(FormatError, match=expected):
        read(recording(wrong))
    del wrong["topic"]
    good = message(1.0, "a", "b", "request", "c.d")
    with pytest.raises(FormatError, match=r"^messages\[1\]: expected the key topic, got nothing$"):
        read(recording(good, wrong))


def test_example_of_the_reference_page_is_a_trace() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "trace.md"
    example = page.read_text().split("```json\n")[1].split("```")[0]
    sent, taken, *later = read(example)
    assert (sent.kind, taken.kind, taken.ref) == ("send", "recv", sent.n)
    assert [(each.n, each.kind, each.ref) for each in later] == [
        (16, "send", 0),
        (17, "send", 0),
        (18, "recv", 16),
        (19, "recv", 17),
    ]
    *whole, several = example.splitlines()
    assert [record_to_json(each).decode() for each in (sent, taken, *later[:2])] == whole
    taken_at_once = [(each.ref, each.message) for each in later[2:] if each.message is not None]
    receipts = Receipts(18, later[2].t, "job-manager", taken_at_once)
    assert records_to_json([receipts], since=16).decode() == several + "\n"
