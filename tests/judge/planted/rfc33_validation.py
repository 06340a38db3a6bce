"""Violations of RFC 33: jobs that a queue should not have taken, or should have."""

from __future__ import annotations

import msgspec

from flux_trio.formats import format_fluid
from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import (
    REMOVED,
    Trace,
    cut_before,
    drop,
    edit_note,
    edit_payload,
    find,
    find_all,
    find_event,
    find_note,
    move,
)
from tests.support.planted import Planted

PLANTED = Planted()

NO_QUEUE = 0  # jobs of several_queues, in order
WAITS, NOSUCH, LONG, ENDLESS, CORES, NODES, CLOSED, NARROW, DISABLED = range(4, 13)


def jobid_of(trace: Trace, nth: int) -> int:
    """A job by its place among those that were submitted."""
    submits = [r for r in trace if r.kind == "event" and r.data["name"] == "submit"]
    return int(submits[nth].data["id"])


def taken(trace: Trace, nth: int) -> Trace:
    """A job is accepted that was refused; nothing more happens."""
    refusal = find_event(trace, "invalidate", jobid_of(trace, nth))
    accepted = edit_note(trace, refusal, name="validate", context=REMOVED)
    return accepted[: refusal.n]


def with_system(trace: Trace, nth: int, **system: object) -> Trace:
    """The jobspec of a job was stored with other keys in attributes.system."""
    key = f"{format_fluid(jobid_of(trace, nth), 'kvs')}.jobspec"
    for commit in find_all(trace, topics.KVS_COMMIT, "request", party="job-ingest"):
        ops = commit.message.payload["ops"]
        for place, (how, name, *rest) in enumerate(ops):
            if name == key:
                jobspec = msgspec.json.decode(rest[0])
                jobspec["attributes"]["system"].update(system)
                other = [how, name, msgspec.json.encode(jobspec).decode()]
                return edit_payload(trace, commit, ops=[*ops[:place], other, *ops[place + 1 :]])
    raise AssertionError(f"no jobspec of job {nth} is stored")


def validated(trace: Trace, nth: int) -> Record:
    """Where a job was accepted."""
    return find_event(trace, "validate", jobid_of(trace, nth))


@PLANTED.violation("33.assignment.2", "several_queues", cut=True)
def no_queue_is_assigned(trace: Trace) -> Trace:
    job = jobid_of(trace, NO_QUEUE)
    trace = drop(trace, find_event(trace, "jobspec-update", job))
    return trace[: validated(trace, NO_QUEUE).n]


@PLANTED.violation("33.assignment.2", "several_queues", cut=True)
def another_queue_is_assigned(trace: Trace) -> Trace:
    update = find_event(trace, "jobspec-update", jobid_of(trace, NO_QUEUE))
    context = {**update.data["context"], "attributes.system.queue": "debug"}
    return edit_note(trace, update, context=context)[: validated(trace, NO_QUEUE).n]


@PLANTED.violation("33.validation.1", "several_queues", cut=True)
def a_queue_that_does_not_exist_takes_a_job(trace: Trace) -> Trace:
    return taken(trace, NOSUCH)


@PLANTED.violation("33.validation.1", "no_queues", cut=True)
def the_anonymous_queue_takes_a_job_of_a_named_one(trace: Trace) -> Trace:
    return taken(trace, 0)


@PLANTED.violation("33.validation.1", "several_queues", cut=True)
def a_queue_that_is_configured_no_more_takes_a_job(trace: Trace) -> Trace:
    refusal = find_event(trace, "invalidate", nth=-1)
    return edit_note(trace, refusal, name="validate", context=REMOVED)[: refusal.n]


@PLANTED.violation("33.validation.2", "several_queues", cut=True)
def a_job_that_is_too_long_is_taken(trace: Trace) -> Trace:
    trace = with_system(trace, LONG, queue="batch")
    return taken(trace, LONG)


@PLANTED.violation("33.validation.2", "several_queues", cut=True)
def a_job_without_an_end_is_taken(trace: Trace) -> Trace:
    return taken(trace, ENDLESS)


@PLANTED.violation("33.validation.2", "several_queues", cut=True)
def a_job_of_too_many_cores_is_taken(trace: Trace) -> Trace:
    trace = with_system(trace, CORES, queue="batch")
    return taken(trace, CORES)


@PLANTED.violation("33.validation.2", "several_queues", cut=True)
def a_job_of_too_many_nodes_is_taken(trace: Trace) -> Trace:
    return taken(trace, NODES)


@PLANTED.violation("33.validation.2", "several_queues", cut=True)
def a_job_of_too_few_nodes_is_taken(trace: Trace) -> Trace:
    return taken(trace, NARROW)


@PLANTED.violation("33.validation.3", "several_queues", cut=True)
def a_queue_that_is_open_to_nobody_takes_a_job(trace: Trace) -> Trace:
    return taken(trace, CLOSED)


def of_user(trace: Trace, nth: int, userid: int) -> Trace:
    """A job is another user's."""
    submit = [r for r in trace if r.kind == "event" and r.data["name"] == "submit"][nth]
    return edit_note(trace, submit, context={**submit.data["context"], "userid": userid})


def for_users(trace: Trace, *names: str) -> Trace:
    """The queue debug is for these users from the beginning."""
    config = find_note(trace, "config")
    queues = config.data["queues"]
    access = {"allow-user": list(names)}
    debug = {**queues["debug"], "policy": {**queues["debug"]["policy"], "access": access}}
    return edit_note(trace, config, queues={**queues, "debug": debug})


@PLANTED.violation("33.validation.3", "several_queues", cut=True)
def a_queue_of_one_user_takes_jobs_of_two(trace: Trace) -> Trace:
    trace = for_users(trace, "alice")
    return of_user(trace, WAITS, 1001)[: validated(trace, WAITS).n]


@PLANTED.violation("33.validation.3", "several_queues", cut=True)
def a_queue_of_others_takes_a_job_of_root(trace: Trace) -> Trace:
    trace = for_users(trace, "alice", "bob")
    return of_user(trace, WAITS, 0)[: validated(trace, WAITS).n]


@PLANTED.violation("33.admin.3", "several_queues", cut=True)
def a_disabled_queue_takes_a_job(trace: Trace) -> Trace:
    return taken(trace, DISABLED)


@PLANTED.violation("33.admin.3", "several_queues")
def jobs_of_a_disabled_queue_are_not_scheduled(trace: Trace) -> Trace:
    alloc = find(trace, topics.SCHED_ALLOC, "request", id=jobid_of(trace, WAITS))
    disable = find(trace, topics.JOB_QUEUE_ENABLE, "request", enable=False)
    done = find(trace, topics.JOB_QUEUE_ENABLE, "response", peer=disable.party)
    trace = move(trace, done, before=alloc)
    done = find(trace, topics.JOB_QUEUE_ENABLE, "response", peer=disable.party)
    trace = move(trace, find(trace, topics.JOB_QUEUE_ENABLE, "request", enable=False), before=done)
    return cut_before(trace, find(trace, topics.SCHED_ALLOC, "request", id=jobid_of(trace, WAITS)))
