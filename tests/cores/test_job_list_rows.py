"""job-list: what is listed of jobs, and how it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.job_list.choosing import LOOKS_MAX, SLICE_JOBS
from flux_trio.cores.job_list.details import FACTS_MAX, Details
from flux_trio.cores.job_list.exchange import Exchange
from flux_trio.cores.job_list.records import Record, Records
from flux_trio.editions import CLASSIC
from flux_trio.formats import ResourceSet, job_key
from flux_trio.messages import Errno, topics
from flux_trio.protocols import ACTIVE, PENDING, RUNNING, JobResult, JobState
from tests.support.asking import GUEST_USERID, asked, asked_by_guest, gone
from tests.support.eventlogs import (
    canceled,
    ending,
    event,
    inactive,
    pending,
    raised,
    running,
    submitted,
)
from tests.support.listing import ListedJobs

R2 = ResourceSet.build([(0, 0b11, 0), (1, 0b11, 0)], lambda rank: f"node{rank}", expiration=9000.0)


# --- what is listed


def test_pending_jobs_come_by_priority_then_the_others_newest_first(listed: ListedJobs) -> None:
    for jobid, priority in ((1, 16), (2, 20), (3, 16)):
        listed.tell_all(jobid, pending(priority=priority))
    for jobid, t in ((4, 10.0), (5, 20.0)):
        listed.tell_all(jobid, running(t))
    for jobid, t in ((6, 10.0), (7, 20.0)):
        listed.tell_all(jobid, inactive(t))
    assert listed.ids() == [2, 1, 3, 5, 4, 7, 6]
    listed.tell((3, 4, event("priority", priority=30)))
    assert listed.ids() == [3, 2, 1, 5, 4, 7, 6]


def test_states_are_a_mask_of_states_and_their_unions(listed: ListedJobs) -> None:
    """21.states.10: PENDING, RUNNING and ACTIVE are unions."""
    logs = [pending()[:2], pending()[:3], pending(), running(), [*running(), raised("x")]]
    for jobid, log in enumerate([*logs, inactive()], start=1):
        listed.tell_all(jobid, log)
    assert sorted(listed.ids(states=PENDING)) == [1, 2, 3]
    assert sorted(listed.ids(states=RUNNING)) == [4, 5]
    assert sorted(listed.ids(states=ACTIVE)) == [1, 2, 3, 4, 5]
    assert listed.ids(states=JobState.SCHED) == [3]
    assert listed.ids(states=JobState.CLEANUP) == [5]
    assert listed.ids(states=JobState.NEW) == []


def test_list_can_be_cut_short_and_narrowed_to_a_user(listed: ListedJobs) -> None:
    for jobid in range(1, 6):
        listed.tell_all(jobid, pending(userid=1000 + jobid % 2))
    assert listed.ids(max_entries=2) == [1, 2]
    assert listed.ids(max_entries=0) == [1, 2, 3, 4, 5]
    assert listed.ids(userid=1000, max_entries=1) == [2]


def test_since_leaves_out_what_ended_by_then_and_nothing_active(listed: ListedJobs) -> None:
    listed.tell_all(1, inactive(10.0))
    listed.tell_all(2, inactive(20.0))
    listed.tell_all(3, pending(1.0))
    assert listed.ids(since=14.0) == [3, 2]
    assert listed.ids(since=13.9) == [3, 2, 1]
    assert listed.ids(since=1e305) == [3]
    assert listed.ids(since=-1e305) == [3, 2, 1]


def test_name_is_given_or_that_of_the_command(listed: ListedJobs) -> None:
    commands = {1: "/usr/bin/true", 2: "true", 3: "sleep", 4: "/bin/"}
    for jobid, command in commands.items():
        listed.store_jobspec(jobid, command)
        listed.tell_all(jobid, pending())
    listed.store_jobspec(5, "x", attributes={"system.job.name": "true"})
    listed.tell_all(5, pending())
    assert [job["name"] for job in listed.jobs()] == ["true", "true", "sleep", "/bin/", "true"]
    assert listed.ids(name="true") == [1, 2, 5]
    assert listed.ids(name="true", max_entries=2) == [1, 2]


def test_jobs_beyond_one_slice_are_listed_in_order(listed: ListedJobs) -> None:
    ids = list(range(1, 2 * SLICE_JOBS + 10))
    for jobid in ids:
        listed.store_jobspec(jobid)
        listed.tell_all(jobid, pending())
    assert listed.ids(max_entries=0) == ids
    assert listed.ids(max_entries=SLICE_JOBS + 1) == ids[: SLICE_JOBS + 1]


def test_lists_of_one_user_are_made_one_after_another_and_do_not_hold_up_anothers(
    listed: ListedJobs,
) -> None:
    ids = list(range(1, 2 * SLICE_JOBS + 10))
    for jobid in ids:
        listed.store_jobspec(jobid)
        listed.tell_all(jobid, pending())
    listed.ids(max_entries=0)  # the facts of all of them are known from here on
    wanted = {"states": int(JobState.SCHED), "max_entries": 0}
    for tag in range(1, 4):
        assert listed.ask(topics.LIST_LIST, wanted, tag=tag) == []
    timers = [timer.key for timer in listed.timers]
    assert len(timers) == 1  # one list is being made
    few = asked_by_guest(topics.LIST_LIST, wanted | {"max_entries": 1})
    ((_, payload),) = listed.request(few)  # while the others wait
    assert [job["id"] for job in payload["jobs"]] == ids[:1]
    listed.request(gone("job-list", "alice"))  # and nobody waits for those any more
    listed.fire_timer()
    assert (listed.timers, listed.take_sent()) == ([], [])


def test_many_lists_without_a_job_are_answered_over_several_turns(listed: ListedJobs) -> None:
    wanted = {"states": int(JobState.SCHED), "userid": 77}
    for jobid in range(1, SLICE_JOBS + 2):
        listed.store_jobspec(jobid)
        listed.tell_all(jobid, pending())
    many = [asked(topics.LIST_LIST, wanted, tag=tag) for tag in range(1, 501)]
    listed.turn(*many)
    assert 0 < len(listed.sent) < 100
    while listed.timers:
        listed.fire_timer()
    assert len(listed.sent) == 500


def test_user_with_few_jobs_among_many_is_answered_in_slices(listed: ListedJobs) -> None:
    mine = LOOKS_MAX + 1
    for jobid in range(1, mine + 1):
        listed.tell_all(jobid, pending(userid=1000 + (jobid == mine)))
    wanted = {"states": int(JobState.SCHED), "userid": 1001}
    assert listed.ask(topics.LIST_LIST, wanted) == []  # others are served between
    listed.tell_all(mine + 1, pending(userid=1001))  # came after
    listed.fire_timer()
    ((_, payload),) = listed.take_sent()
    assert [job["id"] for job in payload["jobs"]] == [mine]


def test_job_that_moves_while_others_are_looked_up_is_listed_as_it_is_then(
    listed: ListedJobs,
) -> None:
    ids = list(range(1, LOOKS_MAX + 3))
    for jobid in ids:
        listed.tell_all(jobid, pending(userid=1000 + (jobid > LOOKS_MAX)))
    wanted = {"states": int(ACTIVE), "userid": 1001}
    assert listed.ask(topics.LIST_LIST, wanted) == []
    first, second = ids[-2:]
    listed.tell((first, 4, event("alloc")))
    listed.tell((second, 4, event("priority", priority=99)))
    listed.fire_timer()
    ((_, payload),) = listed.take_sent()
    assert [(job["id"], job["state"]) for job in payload["jobs"]] == [
        (first, JobState.RUN),
        (second, JobState.SCHED),
    ]


def test_pending_job_is_listed_with_what_it_asks_for(listed: ListedJobs) -> None:
    listed.store_jobspec(7, "/bin/hostname", ntasks=4, nnodes=2, duration=60.0, cwd="/tmp")
    listed.tell_all(7, pending(priority=99))
    assert listed.job(7) == {
        "id": 7,
        "userid": 2000,
        "urgency": 16,
        "priority": 99,
        "t_submit": 1000.0,
        "t_depend": 1000.0,
        "t_priority": 1000.0,
        "t_sched": 1000.0,
        "state": JobState.SCHED,
        "name": "hostname",
        "cwd": "/tmp",
        "ntasks": 4,
        "nnodes": 2,
        "ncores": 4,
        "duration": 60.0,
    }


def test_job_with_resources_is_listed_with_what_it_got(listed: ListedJobs) -> None:
    listed.store_jobspec(7, ntasks=1, attributes={"system.queue": "batch"})
    listed.store(7, "R", R2.to_json())
    listed.now = 1005.0
    listed.tell_all(7, inactive(status=256))
    job = listed.job(7)
    expected = {
        "ranks": "[0-1]",
        "nodelist": "node[0-1]",
        "nnodes": 2,
        "ncores": 4,
        "expiration": 9000.0,
        "queue": "batch",
        "t_run": 1001.0,
        "t_cleanup": 1003.0,
        "t_inactive": 1004.0,
        "success": False,
        "result": JobResult.FAILED,
        "waitstatus": 256,
    }
    assert {name: job[name] for name in expected} == expected


def test_number_of_cores_of_whole_nodes_is_not_known_before_r(listed: ListedJobs) -> None:
    listed.store_jobspec(1, nnodes=2, exclusive=True)
    listed.tell_all(1, pending())
    assert "ncores" not in listed.job(1)
    assert listed.job(1)["nnodes"] == 2


@pytest.mark.parametrize(
    ("each", "options", "before", "after"),
    [
        ({"type": "node", "count": 2}, {"nnodes": 2}, 4, 4),
        ({"type": "node", "count": 3}, {"ntasks": 4}, None, 6),
        ({"type": "core"}, {"ntasks": 4}, 4, 4),
        ({"type": "core", "count": 2}, {"nnodes": 2, "exclusive": True}, None, 8),
    ],
)
def test_tasks_by_node_or_core_are_counted_as_soon_as_the_nodes_or_cores_are_known(
    each: dict[str, Any],
    options: dict[str, Any],
    before: int | None,
    after: int,
    listed: ListedJobs,
) -> None:
    listed.store_jobspec(7, attributes={"system.shell.options.per-resource": each}, **options)
    listed.tell_all(7, pending())
    assert listed.job(7).get("ntasks") == before
    assert "per_resource" not in listed.job(7)
    listed.store(7, "R", R2.to_json())
    listed.tell_all(7, [event("alloc")], place=4)
    assert listed.job(7)["ntasks"] == after


def test_job_that_never_had_a_priority_is_listed_without_one(listed: ListedJobs) -> None:
    listed.tell_all(1, [*pending()[:3], raised("cancel"), event("clean")])
    listed.tell_all(2, [*pending(priority=0), raised("cancel"), event("clean")])
    assert "priority" not in listed.job(1)
    assert listed.job(2)["priority"] == 0


def test_updates_of_jobspec_and_expiration_are_listed(listed: ListedJobs) -> None:
    listed.store_jobspec(1)
    listed.store(1, "R", R2.to_json())
    listed.tell_all(1, pending())
    assert listed.job(1)["duration"] == 0.0
    update = event("jobspec-update", **{"attributes.system.duration": 5.0})
    listed.tell_all(1, [update, event("priority", priority=16), event("alloc")], place=4)
    assert listed.job(1)["duration"] == 5.0
    listed.tell((1, 7, event("resource-update", expiration=7777)))
    assert listed.job(1)["expiration"] == 7777.0


def test_stored_data_that_cannot_be_understood_is_left_out(listed: ListedJobs) -> None:
    listed.store(1, "jobspec", {"version": 1})
    listed.commit(["put", job_key(1, "R"), "not JSON"])
    listed.tell_all(1, running())
    assert {"name", "ranks"}.isdisjoint(listed.job(1))


@pytest.mark.parametrize(
    ("log", "result"),
    [
        (inactive(), JobResult.COMPLETED),
        (inactive(status=9), JobResult.FAILED),
        (canceled(), JobResult.CANCELED),
        ([*running(), raised("timeout"), *ending(status=15)], JobResult.TIMEOUT),
        ([*running(), raised("exec"), *ending()], JobResult.FAILED),
        ([*inactive()[:-1], raised("late"), inactive()[-1]], JobResult.COMPLETED),
        ([*running(), raised("cancel", 1), *ending(status=1)], JobResult.FAILED),
    ],
)
def test_result_says_how_a_job_ended(listed: ListedJobs, log: Any, result: JobResult) -> None:
    listed.tell_all(1, log)
    job = listed.job(1)
    assert job["result"] == result
    assert job["success"] == (result == JobResult.COMPLETED)


def test_first_of_the_most_severe_exceptions_is_listed(listed: ListedJobs) -> None:
    """21.exceptions.5: of several severity 0 exceptions the first is the root cause."""
    exceptions = [raised("minor", 3), raised("first", 0, note="why"), raised("second", 0)]
    listed.tell_all(1, [*running(), *exceptions])
    job = listed.job(1)
    assert job["exception_occurred"]
    seen = (job["exception_type"], job["exception_severity"], job["exception_note"])
    assert seen == ("first", 0, "why")


def test_open_dependencies_are_listed(listed: ListedJobs) -> None:
    adds = [event("dependency-add", description=name) for name in ("b", "a", "c")]
    listed.tell_all(1, [*pending()[:2], *adds, event("dependency-remove", description="c")])
    assert listed.job(1)["dependencies"] == ["a", "b"]


def test_annotations_are_seen_while_the_job_is_pending(listed: ListedJobs) -> None:
    """27.criteria.11: annotations are visible to the listing tool while the job is pending."""
    listed.tell_all(1, pending())
    note = {"sched": {"reason_pending": "no cores"}}
    listed.tell((1, -1, event("annotations", annotations=note)))
    assert listed.job(1).get("annotations") == note
    listed.tell((1, -1, event("annotations", annotations={})))
    assert "annotations" not in listed.job(1)


def test_annotations_of_the_alloc_event_are_final(listed: ListedJobs) -> None:
    final = {"sched": {"resource_summary": "rank0/core0"}}
    listed.tell_all(1, [*pending(), event("alloc", annotations=final)])
    listed.tell((1, -1, event("annotations", annotations={"sched": {"old": 1}})))
    listed.tell((2, -1, event("annotations", annotations={})))  # of a job nobody knows
    assert listed.job(1)["annotations"] == final


# --- requests


def test_guest_may_list_the_jobs_of_all(listed: ListedJobs) -> None:
    listed.tell_all(1, pending(userid=GUEST_USERID + 1))
    ((errnum, answer),) = listed.request(asked_by_guest("job-list.list"))
    assert (errnum, len(answer["jobs"])) == (0, 1)


@pytest.mark.parametrize(
    ("topic", "payload", "errnum", "text"),
    [
        ("job-list.list", {"max_entries": -1}, Errno.EPROTO, "max_entries"),
        ("job-list.list", {"states": "all"}, Errno.EPROTO, "states"),
        ("job-list.list-id", {}, Errno.EPROTO, "id"),
        ("job-list.list-id", {"id": 5}, Errno.ENOENT, "unknown job id"),
        ("job-list.stats", {}, Errno.ENOSYS, "no method stats in service job-list"),
    ],
)
def test_request_that_cannot_be_answered_says_why(
    listed: ListedJobs, topic: str, payload: Any, errnum: int, text: str
) -> None:
    ((got, why),) = listed.ask(topic, payload)
    assert got == errnum
    assert text in why


def test_lookups_of_a_list_are_in_flight_together(listed: ListedJobs) -> None:
    listed.tell_all(1, pending())
    listed.tell_all(2, running())
    (lookup,) = listed.core.turn(0.0, [asked("job-list.list")])
    assert lookup.payload["keys"] == [job_key(1, "jobspec"), job_key(2, "jobspec"), job_key(2, "R")]


def test_facts_are_kept_until_an_update(listed: ListedJobs) -> None:
    listed.store_jobspec(1)
    listed.tell_all(1, pending())
    listed.jobs()
    listed.lookups.clear()
    listed.jobs()
    assert listed.lookups == []


def test_kept_facts_are_bounded() -> None:
    details = Details(Exchange(CLASSIC), Records())
    for jobid in range(FACTS_MAX + 10):
        details.rows([Record(jobid, submitted())], [(jobid, "jobspec")], ["{}"])
    assert list(details.keys_of([Record(n, submitted()) for n in (0, FACTS_MAX)])) == [
        (0, "jobspec")
    ]


def test_row_of_a_finished_job_is_read_once(listed: ListedJobs) -> None:
    listed.store_jobspec(1)
    listed.tell_all(1, running())
    listed.jobs()
    listed.tell_all(1, ending(), place=6)
    listed.lookups.clear()
    rows = listed.jobs()
    assert [row["id"] for row in rows] == [1]
    assert listed.lookups == [job_key(1, part) for part in ("eventlog", "jobspec", "R")]
    listed.lookups.clear()
    assert listed.jobs() == rows
    assert listed.lookups == []


def test_list_for_a_peer_that_is_gone_is_dropped(listed: ListedJobs) -> None:
    for jobid in range(1, SLICE_JOBS + 2):
        listed.tell_all(jobid, pending())
    lookups = listed.core.turn(0.0, [asked("job-list.list")])
    listed.turn(gone("job-list", "alice"))
    listed.do(lookups)
    assert len(listed.lookups) == SLICE_JOBS
    assert listed.sent == []
