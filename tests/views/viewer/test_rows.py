"""A row has the words, jobs, state and causes of its record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import format_fluid, job_key, treeobj
from flux_trio.lab import JobPlan, Plan, run_plan
from flux_trio.messages import Errno, Event, Request, Response, topics
from flux_trio.trace import Kind, Record
from flux_trio.views.viewer import Row, Rows
from flux_trio.views.viewer import rows as rows_module
from flux_trio.views.viewer.rows import BODY_CHARS_MAX, JOBS_MAX, TEXT_CHARS_MAX

JOBID = 1234567890
EXEC_START = f"job-exec.{topics.START_METHOD}"


def traced(*faults: Any, jobs: int = 1) -> list[Record]:
    trace: list[Record] = []
    plan = Plan(1, jobs=(JobPlan(),) * jobs, faults=faults)
    assert run_plan(plan, [trace.append]).problems == ()
    return trace


def rows_of(trace: list[Record], first: int = 0) -> dict[int, Row]:
    make = Rows(first)
    return {row.n: row for record in trace if (row := make.add(record)) is not None}


def event(n: int, name: str, jobid: Any = 7, **context: Any) -> Record:
    data = {"id": jobid, "name": name, "context": context}
    return Record(n, float(n), Kind.EVENT, "job-manager", data=data)


def states(*records: Record) -> list[str]:
    return [row.state for row in rows_of(list(records)).values()]


def test_events_take_a_job_from_state_to_state() -> None:
    rows = rows_of(traced()).values()
    entered = [row.state for row in rows if row.state]
    assert entered == ["DEPEND", "PRIORITY", "SCHED", "RUN", "CLEANUP", "INACTIVE"]
    assert len({row.jobs for row in rows if row.state}) == 1


def test_job_whose_beginning_is_not_in_the_trace_has_the_state_of_its_event() -> None:
    assert states(event(1, "alloc"), event(2, "finish"), event(3, "clean")) == [
        "RUN",
        "CLEANUP",
        "INACTIVE",
    ]


def test_event_that_is_not_allowed_changes_no_state() -> None:
    assert states(event(1, "submit"), event(2, "validate"), event(3, "alloc")) == ["", "DEPEND", ""]


def test_job_that_has_ended_is_in_no_other_state_again() -> None:
    assert states(event(1, "alloc"), event(2, "finish"), event(3, "clean"), event(4, "alloc")) == [
        "RUN",
        "CLEANUP",
        "INACTIVE",
        "",
    ]


def test_what_is_kept_of_ended_jobs_and_gone_parties_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ENDED_MAX", "PARTIES_MAX", "CALLS_MAX"):
        monkeypatch.setattr(rows_module, name, 10)
    make = Rows()
    for n in range(0, 400, 4):
        party = f"client-{n}"
        asked = Request("a.b", {"id": n}, n + 1, routes=(party,))
        make.add(Record(n, 0.0, Kind.SEND, party, "y", 0, asked))
        make.add(Record(n + 1, 0.0, Kind.RECV, party, "y", 0, asked))
        make.add(event(n + 2, "alloc", n))
        if n:
            make.add(event(n + 3, "finish", n))
            make.add(event(n + 3, "clean", n))
    kept = [value for value in vars(make).values() if isinstance(value, dict)]
    assert [len(each) for each in kept if each] == [1, 10, 10, 10]  # one job is active


def test_answer_is_linked_to_its_request_at_both_ends() -> None:
    trace = traced()
    rows = rows_of(trace)
    asked = next(r for r in trace if r.kind == Kind.SEND and is_request(r, topics.INGEST_SUBMIT))
    answers = [rows[r.n] for r in trace if is_response(r, topics.INGEST_SUBMIT)]
    assert [(row.kind, row.request, row.last) for row in answers] == [
        ("send", asked.n, True),
        ("recv", asked.n, True),
    ]
    assert rows[asked.n].jobs == ()
    assert len(answers[0].jobs) == 1


def test_answers_without_a_matchtag_are_linked_by_their_job() -> None:
    trace = traced(jobs=3)
    rows = rows_of(trace)
    starts = [r for r in trace if is_response(r, EXEC_START)]
    assert len(starts) >= 9
    for record in starts:
        assert rows[record.n].jobs == rows[rows[record.n].request].jobs != ()


def is_request(record: Record, topic: str) -> bool:
    return isinstance(record.message, Request) and record.message.topic == topic


def is_response(record: Record, topic: str) -> bool:
    return isinstance(record.message, Response) and record.message.topic == topic


def test_send_follows_the_last_receipt_of_its_party() -> None:
    message = Request("a.b", None, 1, routes=("x",))
    trace = [
        Record(1, 0.0, Kind.RECV, "y", "x", 0, message),
        Record(2, 0.0, Kind.RECV, "z", "x", 0, message),
        Record(3, 0.0, Kind.SEND, "y", "x", 0, Response("a.b", None, 0, 1, routes=("x",))),
    ]
    assert [row.after for row in rows_of(trace).values()] == [0, 0, 1]


def test_receipt_has_words_only_if_its_send_has_no_row() -> None:
    message = Request("a.b", {"id": 7}, routes=("x",))
    trace = [
        Record(1, 0.0, Kind.SEND, "x", "y", 0, message),
        Record(2, 0.0, Kind.SEND, "x", "y", 0, message),
        Record(3, 0.0, Kind.RECV, "y", "", 1, message),
        Record(4, 0.0, Kind.RECV, "y", "", 2, message),
    ]
    assert [row.text for row in rows_of(trace).values()] == ["request a.b id=\u01928"] * 2 + [
        ""
    ] * 2
    rows = rows_of(trace, first=2)
    assert list(rows) == [2, 3, 4]
    assert [row.text for row in rows.values()] == ["request a.b id=\u01928"] * 2 + [""]
    assert all(row.jobs == ("\u01928",) for row in rows.values())
    assert rows[3].peer == "x"


def test_rows_begin_with_the_states_of_active_jobs() -> None:
    trace = [
        event(1, "alloc", 1),
        event(2, "alloc", 2),
        event(3, "finish", 1),
        event(4, "clean", 1),
    ]
    make = Rows(4)
    assert [make.add(record) is None for record in trace] == [True, True, True, False]
    assert make.begun == {"\u01922": "CLEANUP", "\u01923": "RUN"}


def send(message: Any) -> Record:
    return Record(1, 0.0, Kind.SEND, "kvs", "x", 0, message)


@pytest.mark.parametrize(
    ("record", "bad"),
    [
        (send(Response("a.b", None)), ""),
        (send(Response("a.b", "no", Errno.ENOENT)), "error"),
        (send(Response("a.b", None, Errno.ENODATA)), ""),
        (send(Response("kvs.watch", "left", Errno.ECANCELED)), ""),
        (Record(1, 0.0, Kind.DROP, "x", "", 0, Event("a"), {"reason": "gone"}), "lost"),
        (Record(1, 0.0, Kind.MODULE, "broker", data={"module": "x", "what": "started"}), ""),
        (Record(1, 0.0, Kind.MODULE, "broker", data={"module": "x", "what": "crashed"}), "crashed"),
        (Record(1, 0.0, Kind.FAULT, "x", data={"type": "crash"}), "fault"),
        (Record(1, 0.0, Kind.CLOCK, "broker", data={"by": 3.0}), "fault"),
        (event(1, "exception", severity=0), "exception"),
        (event(1, "submit"), ""),
        (Record(1, 0.0, Kind.HOOK, "x", data={"error": "boom"}), "error"),
    ],
)
def test_failures_losses_and_faults_are_marked(record: Record, bad: str) -> None:
    assert rows_of([record])[1].bad == bad


@pytest.mark.parametrize("kind", [Kind.TURN, "unknown"])
def test_turns_and_records_of_unknown_kinds_have_no_row(kind: str) -> None:
    assert rows_of([Record(1, 0.0, kind, "sched", data={"core": {}})]) == {}


def test_commit_is_about_the_jobs_of_its_keys_as_its_answer_is() -> None:
    keys = ["job.0000.0000.0000.0007.R", "checkpoint.x", 5, "job.0000.0000.0000.0009.eventlog"]
    ops = [["put", key, "v"] for key in keys]
    asked = Request(topics.KVS_COMMIT, {"ops": [*ops, [], None]}, 3, routes=("m",))
    answer = Response(topics.KVS_COMMIT, {}, 0, 3, routes=("m",))
    trace = [
        Record(1, 0.0, Kind.SEND, "m", "kvs", 0, asked),
        Record(2, 0.0, Kind.SEND, "kvs", "m", 0, answer),
    ]
    rows = rows_of(trace)
    assert rows[1].jobs == rows[2].jobs == tuple(format_fluid(n, "f58") for n in (7, 9))


R_OF_A_JOB = '{"version": 1, "execution": {"R_lite": []}}'


def test_values_of_flux_cores_kvs_are_shown_as_text() -> None:
    dirent = treeobj.val(R_OF_A_JOB)
    ops = [{"key": job_key(JOBID, "R"), "flags": 0, "dirent": dirent}]
    asked = Request("kvs.commit", {"namespace": "primary", "flags": 0, "ops": ops}, 5)
    found = Response("kvs.lookup", {"val": treeobj.directory({"R": dirent})})
    rows = rows_of([send(asked), Record(2, 0.0, Kind.SEND, "kvs", "m", 0, found)])
    for row in rows.values():
        assert json.dumps(R_OF_A_JOB) in row.body
        assert dirent["data"] not in row.body
    assert rows[1].jobs == (format_fluid(JOBID, "f58"),)


def test_commit_to_the_namespace_of_a_job_is_about_the_job() -> None:
    ops = [{"key": "exec.eventlog", "flags": 32, "dirent": treeobj.val("")}]
    payload = {"namespace": f"job-{JOBID}", "flags": 0, "ops": ops}
    (row,) = rows_of([send(Request("kvs.commit", payload, 5))]).values()
    assert row.jobs == (format_fluid(JOBID, "f58"),)


def test_what_only_looks_like_a_value_stays_as_it_is() -> None:
    damaged = {"ver": 1, "type": "val", "data": "?"}
    elsewhere = treeobj.val("text")
    (row,) = rows_of([send(Response("kvs.lookup", {"val": damaged}))]).values()
    assert '"data":"?"' in row.body
    (row,) = rows_of([send(Request("mine.store", {"val": elsewhere}, 5))]).values()
    assert elsewhere["data"] in row.body


def test_long_messages_are_cut() -> None:
    row = rows_of([send(Event("a", {"ids": list(range(1000)), "x": "y" * 20_000}))])[1]
    assert len(row.text) <= TEXT_CHARS_MAX
    assert len(row.body) == BODY_CHARS_MAX
    assert row.cut > 4_000
    assert len(row.jobs) == JOBS_MAX


KEYS = st.sampled_from(
    [
        "id",
        "ids",
        "jobs",
        "events",
        "keys",
        "key",
        "ops",
        "name",
        "context",
        "what",
        "module",
        "type",
        "error",
        "by",
        "reason",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES)


@given(st.sampled_from(sorted({*Kind} - {Kind.TURN})), OBJECTS)
def test_any_data_and_payload_has_a_row(kind: Kind, held: dict[str, Any]) -> None:
    assert Rows().add(Record(1, 0.0, kind, "x", data=held)) is not None
    assert Rows().add(Record(1, 0.0, kind, "x", message=Request("a", held))) is not None


def test_what_is_as_it_should_be_is_not_marked() -> None:
    """A key that is not there yet, a module that is removed, and what waits when all ends."""
    missing = Response("kvs.lookup", "no such key", int(Errno.ENOENT))
    refused = Response("job-manager.raise", "unknown job", int(Errno.ENOENT))
    removed = {"module": "x", "what": "removed"}
    made = rows_of(
        [
            Record(1, 0.0, Kind.SEND, "kvs", "x", message=missing),
            Record(2, 0.0, Kind.MODULE, "broker", data=removed),
            Record(3, 0.0, Kind.SEND, "job-manager", "x", message=refused),
            Record(4, 0.0, Kind.INSTANCE, "broker", data={"what": "ending"}),
            Record(5, 0.0, Kind.SEND, "job-manager", "x", message=refused),
        ]
    )
    assert [(row.bad, row.gone) for row in made.values()] == [
        ("", False), ("", True), ("error", False), ("", False), ("", False),
    ]  # fmt: skip
