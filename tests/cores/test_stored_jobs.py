"""Requests to the kvs and its answers, and stored jobs, as all services read them."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.kvs_calls import (
    change_in,
    commit_ops,
    count_in,
    page_in,
    value_in,
    values_in,
    written,
)
from flux_trio.cores.stored_jobs import JobsWanted, active_in, fold_eventlog, read_r
from flux_trio.editions import CLASSIC
from flux_trio.formats import format_eventlog
from flux_trio.messages import Errno, FluxError, Response
from flux_trio.protocols import Job, JobState
from tests.support.eventlogs import event, inactive, pending, submitted


def answered(payload: Any = None, errnum: int = 0) -> Response:
    return Response("kvs.x", payload, errnum, 1)


@pytest.mark.parametrize("read", [value_in, values_in, page_in, count_in, change_in])
@pytest.mark.parametrize(
    ("response", "errnum"),
    [
        (answered("the disk fails", Errno.EIO), Errno.EIO),
        (answered({"count": [], "value": 1, "values": 2, "keys": 3}), Errno.EPROTO),
    ],
)
def test_error_of_the_kvs_is_raised_by_every_reader(
    read: Any, response: Response, errnum: int
) -> None:
    with pytest.raises(FluxError) as caught:
        read(response)
    assert caught.value.errnum == errnum


def test_absent_key_has_no_value() -> None:
    assert value_in(answered("a: no such key", Errno.ENOENT)) is None
    assert value_in(answered({"value": ""})) == ""
    assert values_in(answered({"values": ["1", None]})) == ["1", None]


def test_commit_says_wait_only_to_refuse_to_wait() -> None:
    ops = [["put", "a", "1"]]
    assert written(commit_ops(ops), CLASSIC.kvs) == ("kvs.commit", {"ops": ops})
    asked = written(commit_ops(ops, wait=False), CLASSIC.kvs)
    assert asked == ("kvs.commit", {"ops": ops, "wait": False})


def test_page_of_active_jobs_says_where_the_next_begins() -> None:
    page = active_in(answered({"keys": ["active.0000000000000007"]}))
    assert (page.jobids, page.after) == ((7,), None)
    full = active_in(answered({"keys": [f"active.{n:016x}" for n in range(1000)]}))
    assert full.after == f"active.{999:016x}"


def test_values_come_by_job() -> None:
    wanted = JobsWanted((1, 2), ("eventlog", "R"))
    jobs, rest = wanted.take(["a", None, "b", "c"])
    assert (jobs, rest) == ([(1, ["a", None]), (2, ["b", "c"])], None)


def test_values_that_come_in_slices_are_those_of_the_jobs_they_belong_to() -> None:
    wanted: JobsWanted | None = JobsWanted((1, 2), ("eventlog", "jobspec", "R"))
    read = []
    stored = {key: key[-1] for key in JobsWanted.ask(wanted).keys}
    while wanted is not None:
        keys = wanted.ask().keys
        jobs, wanted = wanted.take([stored[key] for key in keys[:2]])
        read += jobs
    assert read == [(1, ["g", "c", "R"]), (2, ["g", "c", "R"])]


@pytest.mark.parametrize("values", [[], ["a", "b", "c"]])
def test_answer_that_brings_nothing_or_too_much_is_an_error(values: list[str | None]) -> None:
    with pytest.raises(FluxError, match=f"expected 1 to 2 values, got {len(values)}"):
        JobsWanted((1,), ("eventlog", "R")).take(values)


def test_stored_eventlog_becomes_a_job() -> None:
    job, events = fold_eventlog(Job, 7, format_eventlog(inactive()))
    assert events == inactive()
    assert job.state is JobState.INACTIVE


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ("{", "line 1"),
        ("", "expected the event submit, got an empty eventlog"),
        (format_eventlog(pending()[1:]), "submit"),
        (format_eventlog([submitted(), event("alloc")]), "alloc"),
        (format_eventlog([event("submit", userid=1)]), "without the key 'urgency'"),
    ],
)
def test_invalid_eventlog_is_an_error_that_names_its_key(log: str, problem: str) -> None:
    with pytest.raises(FluxError) as caught:
        fold_eventlog(Job, 7, log)
    assert caught.value.errnum == Errno.EBADMSG
    assert caught.value.text.startswith("job.0000.0000.0000.0007.eventlog: not a job eventlog: ")
    assert problem in caught.value.text


def test_absent_r_is_an_error_that_names_its_key() -> None:
    with pytest.raises(FluxError, match=r"^R: job\.0000\.0000\.0000\.0007\.R: no such key$"):
        read_r(7, None)
