"""The traces of a tap on a scheduler of flux-core: `tests/real/tapped.sh` has made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from flux_trio.judge import Verdict
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Kind, Record, read_trace, record_to_json
from tests.support import recorded, tapped

Trace = list[Record]


@pytest.mark.parametrize("name", tapped.FAULTS)
def test_a_planted_fault_is_named_first(name: str) -> None:
    assert tapped.named_in(tapped.TRACES / f"{name}.jsonl") == tapped.FAULTS[name]


def test_a_second_success_makes_the_job_manager_free_what_the_job_holds() -> None:
    """alloc.c:190: a SUCCESS for a job that does not wait for one is answered with a free."""
    judgement = tapped.judged(tapped.TRACES / "duplicate-success.jsonl")
    ((cause, following),) = judgement.broken_things()
    assert cause.clause == "27.success.8"
    assert [each.clause for each in following] == ["invariant.freed-once"]


def test_a_tap_shows_headers_and_events_and_not_what_crossed() -> None:
    judgement = tapped.judged(tapped.TRACES / "nothing.jsonl")
    kept = {clause for clause, verdict in judgement.verdicts.items() if verdict is Verdict.KEPT}
    assert {"6.matchtag.4", "21.states.6", "27.success.1"} <= kept
    assert len(kept) >= 175
    assert [each.clause for each in judgement.known if each.violations] == ["6.matchtag.3"]
    assert "the trace does not show what crossed" in judgement.left_out.values()


def changed(name: str, change: Callable[[Record, Any], Any]) -> set[str]:
    """The clauses that a trace breaks whose messages are changed where they are sent."""
    with (tapped.TRACES / f"{name}.jsonl").open() as lines:
        source = read_trace(lines)
        records = [_changed(each, change) for each in source.records]
    told = msgspec.structs.replace(source, records=iter(records))
    return {each.clause for each in recorded.judged_source(told).violations}


def _changed(record: Record, change: Callable[[Record, Any], Any]) -> Record:
    if record.message is None:
        return record
    return msgspec.structs.replace(record, message=change(record, record.message))


def test_a_request_without_response_that_has_a_matchtag_counts() -> None:
    """What is known of 6.matchtag.3 is about disconnects alone."""

    def with_matchtag(_record: Record, message: Any) -> Any:
        is_cancel = isinstance(message, Request) and message.topic == topics.SCHED_CANCEL
        return msgspec.structs.replace(message, matchtag=7) if is_cancel else message

    assert changed("drop-cancel-live", lambda _, message: message) == set()
    assert changed("drop-cancel-live", with_matchtag) == {"6.matchtag.3"}


def test_an_acquire_that_is_no_stream_is_not_served() -> None:
    def without_stream(_record: Record, message: Any) -> Any:
        is_acquire = isinstance(message, Request) and message.topic == topics.RESOURCE_ACQUIRE
        flags = message.flags & ~STREAMING
        return msgspec.structs.replace(message, flags=flags) if is_acquire else message

    assert "28.error.3" not in changed("nothing", lambda _, message: message)
    assert "28.error.3" in changed("nothing", without_stream)


# --- reading


def test_events_that_nobody_followed_are_taken_from_what_the_journal_tells_later() -> None:
    """Between two loads of the module, job 1 ends; of job 2 all is past when the trace begins."""
    told = [
        {"id": 2, "events": [_event(1.0, "submit"), _event(2.0, "alloc")]},
        {"id": 1, "events": [_event(3.0, "submit")]},
        None,
        {"id": 1, "events": [_event(3.0, "submit"), _event(4.0, "clean")]},
        {"id": 2, "events": [_event(1.0, "submit"), _event(2.0, "alloc"), _event(4.5, "free")]},
    ]
    lines = ['{"n":1,"t":0,"kind":"source","party":"x","data":{"by":"x","headers":true}}\n']
    for n, payload in enumerate(told, 2):
        if payload is None:
            data = {"module": "sched-fifo", "what": "removed"}
            record = Record(n, n, Kind.MODULE, "broker", data=data)
        else:
            message = _told(payload)
            record = Record(n, n, Kind.SEND, "job-manager", "x", 0, message)
        lines.append(record_to_json(record).decode() + "\n")
    source = read_trace(lines)
    events = [each.data for each in source.records if each.kind == Kind.EVENT]
    assert [(each["id"], each["name"]) for each in events if each] == [
        (1, "submit"),
        (1, "clean"),
        (2, "free"),
    ]
    assert (source.begins, source.shown.headers, source.shown.crossings) == (False, True, False)


def _event(t: float, name: str) -> dict[str, Any]:
    return {"timestamp": t, "name": name}


def _told(payload: dict[str, Any]) -> Response:
    return Response(topics.JOB_EVENTS, payload, 0, 1, STREAMING, 0, 5, ("x",))
