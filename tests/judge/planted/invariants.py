"""Violations of the invariants."""

from __future__ import annotations

import msgspec

from flux_trio.messages import topics
from flux_trio.trace import Kind
from tests.judge.planted.rfc27_criteria import text_of_r
from tests.support.judged import (
    REMOVED,
    Trace,
    cut_before,
    drop,
    duplicate,
    edit,
    edit_note,
    edit_payload,
    edit_r,
    find,
    find_all,
    find_event,
    find_note,
    insert,
    made,
    made_event,
    move,
)
from tests.support.planted import Planted

PLANTED = Planted()
ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


@PLANTED.violation("invariant.no-double-allocation", "everyday")
def two_jobs_get_the_same_core(trace: Trace) -> Trace:
    first, second = [
        find(trace, ALLOC, "response", type=0, nth=nth).message.payload["id"] for nth in (0, 1)
    ]
    return edit_r(trace, second, text_of_r(trace, first))


@PLANTED.violation("invariant.no-double-allocation", "everyday")
def two_jobs_get_the_same_core_by_an_r_that_is_not_valid(trace: Trace) -> Trace:
    first, second = [
        find(trace, ALLOC, "response", type=0, nth=nth).message.payload["id"] for nth in (0, 1)
    ]
    r = msgspec.json.decode(text_of_r(trace, first))
    r["execution"]["nodelist"] = ["no[de"]
    return edit_r(trace, second, msgspec.json.encode(r).decode())


@PLANTED.violation("invariant.denied-although-satisfiable", "everyday")
def a_job_is_denied_that_fits(trace: Trace) -> Trace:
    success = find(trace, ALLOC, "response", type=0)
    return edit_payload(trace, success, type=2, note="no room", annotations=REMOVED)


@PLANTED.violation("invariant.done-as-answered", "everyday")
def a_cancel_is_answered_and_never_logged(trace: Trace) -> Trace:
    jobid = find(trace, topics.JOB_RAISE, "request").message.payload["id"]
    return drop(trace, find_event(trace, "exception", jobid))


@PLANTED.violation("invariant.done-as-answered", "everyday")
def a_submitter_is_told_the_id_of_no_job(trace: Trace) -> Trace:
    told = find(trace, topics.INGEST_SUBMIT, "response")
    return edit_payload(trace, told, id=told.message.payload["id"] + 1)


@PLANTED.violation("invariant.done-as-answered", "everyday")
def a_submission_is_refused_and_its_job_runs(trace: Trace) -> Trace:
    told = find(trace, topics.INGEST_SUBMIT, "response")
    return edit(trace, told, errnum=22, payload="no")


@PLANTED.violation("invariant.done-as-answered", "everyday")
def an_urgency_is_answered_and_never_logged(trace: Trace) -> Trace:
    return drop(trace, find_event(trace, "urgency"))


@PLANTED.violation("invariant.done-as-answered", "expiring")
def an_update_is_answered_and_never_logged(trace: Trace) -> Trace:
    return drop(trace, find_event(trace, "jobspec-update"))


@PLANTED.violation("invariant.done-as-answered", "expiring")
def an_update_does_not_move_the_end_of_a_running_job(trace: Trace) -> Trace:
    """The scheduler is not asked, either."""
    asked, answered = (
        find(trace, topics.SCHED_EXPIRATION, type_) for type_ in ("request", "response")
    )
    return drop(trace, asked, answered, find_event(trace, "resource-update"))


@PLANTED.violation("invariant.expirations-told", "expiring")
def the_execution_service_does_not_hear_of_a_new_end(trace: Trace) -> Trace:
    """The trace ends while the job runs."""
    update = find_event(trace, "resource-update")
    told = find_all(trace, topics.JOB_JOURNAL, "response", peer=topics.JOB_EXEC)
    return cut_before(trace, next(each for each in told if each.n > update.n))


@PLANTED.violation("invariant.guests-as-allowed", "guests")
def a_guest_gets_an_urgency_of_the_owners(trace: Trace) -> Trace:
    refused = find(trace, topics.JOB_URGENCY, "response", errnum=22)
    return edit(trace, refused, errnum=0, payload={"old_urgency": 0})


@PLANTED.violation("invariant.guests-as-allowed", "guests")
def a_guests_job_is_taken_that_is_not_to_be_validated(trace: Trace) -> Trace:
    return edit_payload(trace, find(trace, topics.INGEST_SUBMIT, "request"), flags=4)


@PLANTED.violation("invariant.prolog-ends-first", "held_up")
def a_job_ends_while_its_prolog_runs(trace: Trace) -> Trace:
    return drop(trace, find_event(trace, "prolog-finish"))


@PLANTED.violation("invariant.no-double-allocation", "everyday")
def a_core_is_granted_again_and_was_not_freed(trace: Trace) -> Trace:
    """The free event is logged: the job manager owes the sched.free."""
    free = find(trace, FREE, "request")
    jobid = free.message.payload["id"]
    return drop(trace, free, find(trace, FREE, "response", id=jobid))


@PLANTED.violation("invariant.no-double-allocation", "everyday")
def a_core_is_granted_again_before_it_is_freed(trace: Trace) -> Trace:
    """The free event is logged, and the scheduler did not wait for the sched.free."""
    free, granted = find(trace, FREE, "request"), find(trace, ALLOC, "response", type=0, nth=2)
    return move(trace, free, after=granted)


@PLANTED.violation("invariant.freed-once", "everyday")
def frees_twice(trace: Trace) -> Trace:
    return duplicate(trace, find_event(trace, "free"))


@PLANTED.violation("invariant.freed-once", "everyday")
def asks_to_free_what_is_free(trace: Trace) -> Trace:
    again = made("job-manager", "sched", find(trace, FREE, "request").message)[0]
    return insert(trace, find_event(trace, "free"), again)


@PLANTED.violation("invariant.one-in-flight", "everyday")
def two_requests_in_flight(trace: Trace) -> Trace:
    return duplicate(trace, find(trace, ALLOC, "request"))


@PLANTED.violation("invariant.held-job-waits", "everyday")
def asks_for_a_held_job(trace: Trace) -> Trace:
    priority = find_event(trace, "priority")
    jobid = priority.data["id"]
    submit = find_event(trace, "submit", jobid)
    trace = edit_note(trace, priority, context={"priority": 0})
    trace = edit_note(trace, submit, context={**submit.data["context"], "urgency": 0})
    return edit_payload(trace, find(trace, ALLOC, "request", id=jobid), priority=0)


@PLANTED.violation("invariant.event-order", "everyday")
def depends_in_sched(trace: Trace) -> Trace:
    priority = find_event(trace, "priority")
    return insert(trace, priority, made_event(priority.data["id"], "depend"))


@PLANTED.violation("invariant.event-order", "everyday")
def starts_without_resources(trace: Trace) -> Trace:
    priority = find_event(trace, "priority")
    return insert(trace, priority, made_event(priority.data["id"], "start"))


@PLANTED.violation("invariant.event-order", "everyday")
def submitted_twice(trace: Trace) -> Trace:
    return duplicate(trace, find_event(trace, "submit"))


@PLANTED.violation("invariant.scheduler-agrees", "scheduler_reload")
def scheduler_forgets_what_runs(trace: Trace) -> Trace:
    account = next(r for r in trace if r.kind == Kind.STATE and r.data.get("allocated"))
    return edit_note(trace, account, allocated=[])


@PLANTED.violation("invariant.scheduler-agrees", "scheduler_reload")
def scheduler_knows_of_a_job_there_is_not(trace: Trace) -> Trace:
    note = find_note(trace, Kind.STATE.value, party="sched")
    return edit_note(trace, note, allocated=[[999, {}]])
