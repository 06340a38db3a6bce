"""job-list: following the jobs through journal and eventlogs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_index import active_key, ended_key, ended_value, read_ended, submit_op
from flux_trio.cores.job_list import JobListCore
from flux_trio.cores.kvs_calls import LOOKUP_JOBS_MAX
from flux_trio.cores.turns import Exit, SetTimer
from flux_trio.editions.journal import Ended
from flux_trio.formats import format_eventlog, job_key
from flux_trio.messages import ROLE_USER, Errno, Flag, Request, Response, topics
from flux_trio.protocols import ACTIVE, RUNNING, JobState
from tests.support.asking import service_back
from tests.support.eventlogs import ending, event, inactive, pending, running
from tests.support.listing import ListedJobs

STREAMING = int(Flag.STREAMING)


SUBMIT = [1, 0, msgspec.to_builtins(pending()[0])]


# --- following


def test_journal_is_opened_before_any_eventlog_is_read() -> None:
    core = JobListCore()
    (journal,) = core.start(0.0)
    assert journal.topic == topics.JOB_JOURNAL
    begun = Response(journal.topic, {"events": []}, 0, journal.matchtag, STREAMING)
    (scan,) = core.turn(0.0, [begun])
    assert (scan.topic, scan.payload["prefix"]) == ("kvs.page", "active")


def test_jobs_of_before_are_read_from_their_eventlogs() -> None:
    listed = ListedJobs()
    listed.store_log(1, pending())
    listed.store_log(2, running())
    listed.store_log(3, inactive())
    listed.start()
    assert listed.ids() == [1, 2, 3]


def test_jobs_of_before_are_listed_by_time_however_they_were_read() -> None:
    listed = ListedJobs()
    for jobid, t in ((1, 30.0), (2, 10.0), (3, 20.0)):
        listed.store_log(jobid, inactive(t))
        listed.store_log(jobid + 10, running(t))
    listed.start()
    assert listed.ids(states=JobState.INACTIVE) == [1, 3, 2]
    assert listed.ids(states=RUNNING) == [11, 13, 12]


def test_every_job_is_read_when_there_are_more_than_are_asked_for_at_once() -> None:
    listed = ListedJobs()
    log = format_eventlog(pending())
    ids = range(1, LOOKUP_JOBS_MAX + 100)
    listed.commit(*(["append", job_key(jobid, "eventlog"), log] for jobid in ids))
    listed.commit(*map(submit_op, ids))
    listed.start()
    assert len(listed.lookups) == len(ids)
    assert listed.ids(max_entries=0) == list(ids)


def test_requests_wait_until_every_job_has_been_read() -> None:
    listed = ListedJobs()
    listed.store_log(1, pending())
    listed.do(listed.core.start(0.0))
    assert listed.ask("job-list.list") == []
    listed.tell()
    ((_, answer),) = listed.take_sent()
    assert [job["id"] for job in answer["jobs"]] == [1]


def test_event_that_was_in_the_eventlog_already_is_not_folded_twice() -> None:
    listed = ListedJobs()
    listed.store_log(1, pending())
    listed.do(listed.core.start(0.0))
    events = list(enumerate(running()))
    listed.turn(
        listed.from_journal({"events": []}),
        listed.from_journal({"events": [[1, n, _builtins(e)] for n, e in events[2:]]}),
    )
    assert listed.job(1)["state"] == JobState.RUN


def test_job_is_followed_through_its_states(listed: ListedJobs) -> None:
    events = inactive()
    seen = []
    for place, each in enumerate(events):
        listed.tell((1, place, each))
        seen.append((each.name, listed.job(1)["state"]))
    assert seen == [
        ("submit", JobState.NEW),
        ("validate", JobState.DEPEND),
        ("depend", JobState.PRIORITY),
        ("priority", JobState.SCHED),
        ("alloc", JobState.RUN),
        ("start", JobState.RUN),
        ("finish", JobState.CLEANUP),
        ("release", JobState.CLEANUP),
        ("free", JobState.CLEANUP),
        ("clean", JobState.INACTIVE),
    ]


def test_job_that_was_refused_never_was(listed: ListedJobs) -> None:
    listed.tell_all(1, [pending()[0], event("invalidate")])
    assert listed.ids() == []
    assert listed.ask("job-list.list-id", {"id": 1}) == [(Errno.ENOENT, "unknown job id")]


def test_job_that_is_not_accepted_yet_is_not_in_a_list(listed: ListedJobs) -> None:
    listed.tell((1, 0, pending()[0]))
    assert listed.ids() == []


def test_journal_is_opened_again_when_the_job_manager_is_back(listed: ListedJobs) -> None:
    listed.tell_all(1, pending())
    listed.tell_all(2, inactive())
    listed.lose_journal()
    assert [each.text for each in listed.logs] == [
        "the journal of jobs has ended: job-manager is gone"
    ]
    assert listed.ids() == [1, 2]  # what was last known

    listed.store_log(1, [event("flux-restart"), event("priority", priority=9)])
    listed.store_log(3, pending())
    listed.lookups.clear()
    listed.fire_timer()
    listed.tell()
    assert listed.lookups == [job_key(1, "eventlog"), job_key(3, "eventlog")]
    assert [(job["id"], job["priority"]) for job in listed.jobs(states=ACTIVE)] == [(3, 16), (1, 9)]
    listed.tell((1, 6, event("alloc")))
    assert listed.ids(states=RUNNING) == [1]


def test_journal_is_opened_at_once_when_the_broker_says_that_there_is_a_job_manager(
    listed: ListedJobs,
) -> None:
    """readings: Job manager gone. It waits for the name to return."""
    listed.lose_journal()
    lost = listed.journal
    listed.turn(service_back("kvs"), service_back("job-manager", rolemask=ROLE_USER))
    assert listed.journal is lost
    listed.turn(service_back("job-manager"))
    asked_again = listed.journal
    assert asked_again is not lost
    assert listed.timers == []
    listed.turn(service_back("job-manager"))
    assert listed.journal is asked_again


def test_journal_that_is_never_there_is_asked_for_less_and_less_often(listed: ListedJobs) -> None:
    waits: list[float] = []
    for _ in range(9):
        listed.lose_journal()
        waits.append(listed.timers[0].at)
        listed.timers[0] = SetTimer(listed.timers[0].key, 0.0)  # each turn is at 0
        listed.fire_timer()
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    listed.tell()
    listed.lose_journal()
    assert listed.timers[0].at == 1


def test_running_job_that_is_read_again_is_followed_further(listed: ListedJobs) -> None:
    listed.store_log(1, running())
    listed.tell_all(1, running())
    listed.lose_journal()
    listed.fire_timer()
    listed.tell()
    listed.tell_all(1, ending(), place=6)
    assert listed.ids(states=RUNNING) == []
    assert listed.ids(states=JobState.INACTIVE) == [1]


def test_each_loss_of_the_journal_is_logged(listed: ListedJobs) -> None:
    for _ in range(2):
        listed.lose_journal()
        listed.fire_timer()
        listed.tell()
    assert len(listed.logs) == 2


def test_journal_that_was_given_up_is_not_listened_to(listed: ListedJobs) -> None:
    entry = [1, 0, _builtins(pending()[0])]
    late = listed.from_journal({"events": [entry]})
    listed.tell((1, 3, event("x")))  # a gap
    listed.turn(late)
    assert listed.ask("job-list.list-id", {"id": 1}) == [(Errno.ENOENT, "unknown job id")]


def test_absent_job_manager_is_asked_for_again_and_logged_once() -> None:
    listed = ListedJobs()
    listed.do(listed.core.start(0.0))
    for _ in range(3):
        listed.lose_journal()
        listed.fire_timer()
    assert len(listed.logs) == 1
    listed.tell()
    assert listed.ids() == []


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([SUBMIT, [1, 3, {"timestamp": 1.0, "name": "x"}]], "job 1: expected event 1, got 3"),
        ([[1, 0, {"timestamp": 1.0, "name": "alloc"}]], "job 1: job: alloc in state NEW"),
        ([SUBMIT, [1, 1, {"timestamp": 1.0, "name": "alloc"}]], "(after submit)"),
        ([[1, 0]], "Expected `array` of length 3"),
    ],
)
def test_journal_that_cannot_be_followed_is_opened_again(
    listed: ListedJobs, entries: list[Any], reason: str
) -> None:
    listed.turn(listed.from_journal({"events": entries}))
    assert reason in listed.logs[0].text
    listed.store_log(1, pending())
    listed.fire_timer()
    listed.tell()
    assert listed.ids() == [1]


def test_job_that_ended_before_active_jobs_were_read_is_told_of_later(listed: ListedJobs) -> None:
    """The journal has begun by then, and its last events are on their way."""
    events = inactive()
    listed.store_log(1, events)
    last = len(events) - 1
    listed.turn(listed.from_journal({"events": [[1, last, _builtins(events[-1])]]}))
    assert listed.logs == []
    assert listed.job(1)["state"] == JobState.INACTIVE
    active = running()
    listed.store_log(2, active)
    listed.turn(listed.from_journal({"events": [[2, len(active) - 1, _builtins(active[-1])]]}))
    assert listed.ids(states=RUNNING) == [2]


def test_held_journal_that_cannot_be_followed_is_opened_again() -> None:
    listed = ListedJobs()
    listed.do(listed.core.start(0.0))
    gap = listed.from_journal({"events": [SUBMIT, [1, 3, {"timestamp": 1.0, "name": "x"}]]})
    listed.turn(listed.from_journal({"events": []}), gap)
    assert "expected event 1, got 3" in listed.logs[0].text
    assert len(listed.timers) == 1


def test_journal_is_not_opened_while_eventlogs_are_still_read(listed: ListedJobs) -> None:
    listed.lose_journal()
    listed.fire_timer()
    assert listed.journal is not None
    begun = listed.from_journal({"events": []})
    (scan,) = listed.core.turn(0.0, [begun])
    listed.lose_journal()
    listed.fire_timer()
    assert listed.journal is None
    assert len(listed.timers) == 1
    listed.do([scan])
    listed.fire_timer()
    assert listed.journal is not None


def test_unreadable_eventlog_is_left_out_and_logged() -> None:
    listed = ListedJobs()
    listed.commit(["put", job_key(1, "eventlog"), "what?\n"], submit_op(1))
    listed.store_log(2, pending())
    listed.start()
    assert listed.ids() == [2]
    assert listed.logs[0].text.startswith(f"{job_key(1, 'eventlog')}: not a job eventlog")


def test_store_that_cannot_be_read_ends_the_service() -> None:
    core = JobListCore()
    (journal,) = core.start(0.0)
    begun = Response(journal.topic, {"events": []}, 0, journal.matchtag, STREAMING)
    (scan,) = core.turn(0.0, [begun])
    (action,) = core.turn(0.0, [_refusal(scan)])
    assert action == Exit("cannot read the jobs: disk: gone")


def test_eventlog_that_cannot_be_read_ends_the_service() -> None:
    core = JobListCore()
    (journal,) = core.start(0.0)
    begun = Response(journal.topic, {"events": []}, 0, journal.matchtag, STREAMING)
    (scan,) = core.turn(0.0, [begun])
    keys = Response(scan.topic, {"keys": [active_key(1), active_key(2)]}, 0, scan.matchtag)
    (lookup,) = core.turn(0.0, [keys])
    (action,) = core.turn(0.0, [_refusal(lookup)])[:1]
    assert action == Exit("cannot read the jobs: disk: gone")


def _builtins(each: Any) -> dict[str, Any]:
    known = {"timestamp": each.timestamp, "name": each.name}
    return known | ({"context": each.context} if each.context is not None else {})


def _refusal(request: Request) -> Response:
    return Response(request.topic, "disk: gone", Errno.EIO, request.matchtag)


@pytest.mark.parametrize(
    ("jobid", "refusal"),
    [
        (-1, (Errno.EPROTO, "job-list.list-id: payload: Expected `int` >= 0 - at `$.id`")),
        (1 << 64, (Errno.ENOENT, "unknown job id")),
    ],
)
def test_id_that_no_job_can_have_is_refused(
    listed: ListedJobs, jobid: int, refusal: tuple[Errno, str]
) -> None:
    """A guest sends it, and the module goes on."""
    assert listed.ask(topics.LIST_ID, {"id": jobid}) == [refusal]


def test_place_of_a_finished_job_that_cannot_be_read_tells_of_the_job_all_the_same() -> None:
    job = Ended(7, 1_000_000, 1000, 1, 2, 3)
    assert read_ended(ended_key(job), ended_value(job)) == job
    assert read_ended(ended_key(job), "") == read_ended(ended_key(job), None)
    assert read_ended(ended_key(job), "").id == 7
