"""job-list: what users choose has no natural length, and lists are bounded in bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_index import NAME_CHARS_MAX
from flux_trio.cores.job_list import details, listing
from flux_trio.cores.job_list.details import FACTS_CHARS_MAX, FACTS_MAX, Details
from flux_trio.cores.job_list.exchange import Exchange
from flux_trio.cores.job_list.listing import LIST_BYTES_MAX, SLICE_JOBS
from flux_trio.cores.job_list.records import Record, Records
from flux_trio.cores.job_list.rows import PAGE_BYTES_MAX, ROW_BYTES_MAX
from flux_trio.editions import CLASSIC
from flux_trio.messages import Errno, topics
from flux_trio.messages.codec import FRAME_BYTES_MAX
from flux_trio.protocols import JobState
from tests.support.asking import asked
from tests.support.eventlogs import event, inactive, pending, running, submitted
from tests.support.listing import STATES, ListedJobs

LONG = "n" * 1_000_000
ALL = {"states": STATES, "max_entries": 0}


def store_long(listed: ListedJobs, jobid: int) -> None:
    """A job with a long name, command and working directory, of before these had a limit."""
    attributes = {"system.job.name": f"{jobid}{LONG}"}
    listed.store_jobspec(jobid, "true", cwd=f"/{LONG}", attributes=attributes)


def size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def test_long_names_are_cut_and_found_and_long_directories_left_out(listed: ListedJobs) -> None:
    store_long(listed, 1)
    store_long(listed, 2)
    listed.tell_all(1, pending())
    listed.tell_all(2, inactive())
    name = f"2{LONG}"
    jobs = listed.jobs(name=name)
    assert [(job["id"], job["name"]) for job in jobs] == [(2, name[:NAME_CHARS_MAX])]
    assert "cwd" not in jobs[0]


def test_pages_end_by_bytes(listed: ListedJobs) -> None:
    for jobid in range(1, SLICE_JOBS):
        listed.store_jobspec(jobid, f"{jobid}" + "n" * NAME_CHARS_MAX, cwd="/" + "d" * 4000)
        listed.tell_all(jobid, pending())
    listed.turn(asked(topics.LIST_LIST, ALL, streaming=True))
    while listed.timers:
        listed.fire_timer()
    *pages, (errnum, _) = listed.take_sent()
    assert errnum == Errno.ENODATA
    assert [job["id"] for _, page in pages for job in page["jobs"]] == [*range(1, SLICE_JOBS)]
    assert max(size(page["jobs"]) for _, page in pages) < 1.1 * PAGE_BYTES_MAX


def test_row_leaves_out_its_longest_values(listed: ListedJobs) -> None:
    listed.store_jobspec(1)
    adds = [event("dependency-add", description=f"{n}" + "d" * 1000) for n in range(500)]
    listed.tell_all(1, [*pending()[:2], *adds])
    memo = event("memo", annotations={"x": "y"})
    listed.tell((1, len(adds) + 2, memo))
    job = listed.job(1)
    assert "dependencies" not in job
    assert (job["name"], job["state"]) == ("true", JobState.DEPEND)
    assert size(job) <= ROW_BYTES_MAX


def test_list_in_one_response_is_refused_before_it_is_too_long_for_a_frame(
    listed: ListedJobs,
) -> None:
    assert LIST_BYTES_MAX < FRAME_BYTES_MAX
    annotations = {"x": "y" * (ROW_BYTES_MAX - 1000)}
    jobids = range(1, LIST_BYTES_MAX // (ROW_BYTES_MAX - 1000) + 2)
    for jobid in jobids:
        listed.store_jobspec(jobid)
        listed.tell_all(jobid, [*pending(), event("alloc", annotations=annotations)])
    wanted = ALL | {"max_entries": len(jobids) - 5}
    assert len(listed.jobs(**wanted)) == len(jobids) - 5
    listed.turn(asked(topics.LIST_LIST, ALL))
    while listed.timers:
        listed.fire_timer()
    ((errnum, text),) = listed.take_sent()
    assert errnum == Errno.EMSGSIZE
    assert "streaming" in text


def test_slice_reads_few_long_jobspecs_at_once(
    listed: ListedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those after the first that are too long together are left to the next turn."""
    monkeypatch.setattr(details, "LOOKUP_CHARS_MAX", 1000)
    monkeypatch.setattr(listing, "JOB_CHARS", 20)
    command = ["true", "x" * 600]
    for jobid in range(1, 6):
        listed.store_jobspec(jobid, *command)
        listed.tell_all(jobid, pending() if jobid < 4 else running())
    turns = 0
    listed.turn(asked(topics.LIST_LIST, ALL))
    while listed.timers:
        turns += 1
        listed.fire_timer()
    ((_, payload),) = listed.take_sent()
    assert [job["id"] for job in payload["jobs"]] == [1, 2, 3, 5, 4]
    assert all(job["name"] == "true" for job in payload["jobs"])
    assert turns >= 3


def test_job_that_is_too_long_for_a_slice_is_read_alone(
    listed: ListedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(details, "LOOKUP_CHARS_MAX", 10)
    for jobid in range(1, 4):
        listed.store_jobspec(jobid)
        listed.tell_all(jobid, inactive())
    assert listed.ids() == [3, 2, 1]
    assert {job["name"] for job in listed.jobs()} == {"true"}


def test_kept_facts_are_bounded_by_their_length() -> None:
    kept = Details(Exchange(CLASSIC), Records())
    text = msgspec.json.encode(
        {
            "version": 1,
            "resources": [{"type": "slot", "count": 1, "label": "t", "with": [CORE]}],
            "tasks": [{"command": ["true"], "slot": "t", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 0, "cwd": "/" + "d" * 4000}},
        }
    ).decode()
    jobs = [Record(jobid, submitted()) for jobid in range(FACTS_CHARS_MAX // 4000 + 100)]
    for job in jobs:
        kept.rows([job], [(job.id, "jobspec")], [text])
    missing = list(kept.keys_of(jobs))
    assert 0 < len(missing) < 200 < FACTS_MAX
    assert missing[0] == (0, "jobspec")  # the oldest go first


def test_kept_rows_are_bounded_and_a_slice_of_finished_jobs_is_read_as_a_whole(
    listed: ListedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for jobid in range(1, 4):
        listed.store_jobspec(jobid)
        listed.tell_all(jobid, inactive())
    rows = listed.jobs()
    row_bytes = len(msgspec.json.encode(rows[0]))
    monkeypatch.setattr(details, "ROWS_BYTES_MAX", 2 * row_bytes)
    listed.tell_all(4, inactive())
    for _ in range(2):  # of four rows two are kept, so the other two are never there
        listed.lookups.clear()
        assert listed.ids() == [4, 3, 2, 1]
        assert len(listed.lookups) == 4 * 3
    monkeypatch.undo()
    listed.jobs()
    listed.lookups.clear()
    assert listed.jobs()[1:] == rows
    assert listed.lookups == []


CORE = {"type": "core", "count": 1}
