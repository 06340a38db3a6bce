"""The execution service's core and the job manager: journals, a job manager that is away."""

from __future__ import annotations

from random import Random

import pytest

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.calls import AGAIN, AGAIN_S
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.turns import TimerFired
from flux_trio.formats import format_eventlog, job_key
from flux_trio.messages import ROLE_USER, Errno, Request, Response, respond_stream, topics
from tests.support.asking import gone, service_back
from tests.support.eventlogs import event, running
from tests.support.exec_script import (
    MANAGER,
    RELEASE,
    START_AT,
    ExecScript,
    begin_journal,
    job_exception,
    journal,
    resources,
    simulated,
    start_request,
    timers,
    told,
)

LONGER = format_eventlog([*running(48.0), event("resource-update", expiration=START_AT + 90)])


# Hello


def test_lost_job_manager_is_greeted_again_until_it_answers() -> None:
    """readings: Job manager gone. Exec says hello again when the name is back."""
    script = ExecScript()
    script.start(7, simulated("60s"))
    actions = script(gone("job-exec", MANAGER))
    (hello,) = [action for action in actions if isinstance(action, Request)]
    assert script(Response(hello.topic, "No service", Errno.ENOSYS, hello.matchtag)) == []
    assert script(service_back("kvs"), service_back(MANAGER, rolemask=ROLE_USER)) == []
    (hello,) = script(service_back(MANAGER))
    assert script(service_back(MANAGER)) == []
    assert hello.topic == "job-manager.exec-hello"


def test_end_of_the_journal_shows_that_the_job_manager_is_gone() -> None:
    script = ExecScript()
    assert script.journal is not None
    begun = respond_stream(script.journal, {"events": []})
    assert begun is not None
    assert script(begun) == []
    (hello,) = script(ended(script.journal, Errno.ENOSYS, "job-manager is gone"))
    assert hello.topic == "job-manager.exec-hello"


def test_job_manager_without_a_journal_is_not_taken_for_gone() -> None:
    """Whatever it says: its journal has never begun."""
    script = ExecScript()
    assert script.journal is not None
    assert script(ended(script.journal, Errno.ENOSYS, "what is that?")) == []


def test_job_that_ends_while_the_job_manager_is_away_is_told_to_the_next() -> None:
    """32.start.36: the final release still comes."""
    script = ExecScript()
    actions = script.start(7, simulated("60s"))
    script.next_manager()
    assert told(script.fire(actions)) == []
    answers = told(script(start_request(7, simulated("60s"), reattach=True)))
    assert answers == [("start",), ("finish", 0), RELEASE]


def test_repeated_start_finds_an_expiration_that_nobody_told() -> None:
    """readings: How exec learns of cancels.

    The job's resource-update event is what counts, whoever was away.
    """
    script = ExecScript()
    script.start(7, simulated("60s"), resources(expiration=START_AT + 5))
    script.next_manager()
    script.kvs[job_key(7, "eventlog")] = LONGER
    assert told(script(start_request(7, simulated("60s"), reattach=True))) == [("start",)]
    assert timers(begin_journal(script)) == [START_AT + 60]  # its own end is before the limit now
    again = script(start_request(7, simulated("60s"), reattach=True))
    assert timers(again) == []  # it is read again, and nothing has changed


def test_repeated_start_finds_a_cancel_that_nobody_told() -> None:
    """readings: How exec learns of cancels. The job manager ended when it had stored it."""
    script = ExecScript()
    script.start(7, simulated("60s"))
    script.next_manager()
    canceled = event("exception", type="cancel", severity=0, note="")
    script.kvs[job_key(7, "eventlog")] = format_eventlog([*running(48.0), canceled])
    assert told(script(start_request(7, simulated("60s"), reattach=True))) == [("start",)]
    assert told(begin_journal(script)) == [("finish", 15), RELEASE]


def test_expiration_that_changed_before_the_journal_began_is_found() -> None:
    """No event has told of it: the eventlog is read when no later one can be missed."""
    script = ExecScript()
    script.start(7, simulated("60s"), resources(expiration=START_AT + 5))
    script.kvs[job_key(7, "eventlog")] = LONGER
    assert timers(begin_journal(script)) == [START_AT + 60]
    script.lookups.clear()
    script.start(8, simulated("60s"), resources(expiration=START_AT + 5))
    assert script.lookups == [job_key(8, "R")]  # the journal tells of its updates


def test_job_that_is_prepared_when_the_journal_begins_is_read_when_it_runs() -> None:
    script = ExecScript()
    script.put_resources(7, resources(expiration=START_AT + 5))
    (lookup,) = script.core.turn(START_AT, [start_request(7, simulated("60s"))])
    begin_journal(script)
    script.kvs[job_key(7, "eventlog")] = LONGER
    assert timers(script(script._kvs(lookup)))[-1] == START_AT + 60


@pytest.mark.parametrize("begins_before", [True, False])
def test_eventlog_of_a_job_to_reattach_is_read_again_if_the_journal_began_later(
    begins_before: bool,
) -> None:
    """Once is enough if no update could be missed since it was asked for."""
    script = ExecScript()
    script.put_resources(7, resources(expiration=START_AT + 5))
    (r,) = script.core.turn(START_AT, [start_request(7, simulated("60s"), reattach=True)])
    log = job_key(7, "eventlog")
    before = running(START_AT - 20)
    longer = [*before, event("resource-update", expiration=START_AT + 30)]
    script.kvs[log] = format_eventlog(longer if begins_before else before)
    if begins_before:
        begin_journal(script)
    actions = script(script._kvs(r))
    assert script.lookups == [job_key(7, "R"), log]
    if not begins_before:
        assert timers(actions)[-1] == START_AT + 5
        script.kvs[log] = format_eventlog(longer)
        actions = begin_journal(script)
        assert script.lookups == [job_key(7, "R"), log, log]
    assert timers(actions)[-1] == START_AT + 30


def test_journal_that_a_full_inbox_refuses_is_asked_for_again() -> None:
    """Otherwise no update would be heard of, and nothing would say what is durable."""
    script = ExecScript()
    first = script.journal
    assert first is not None
    assert timers(script(ended(first, Errno.EAGAIN, "too many wait"))) == [START_AT + AGAIN_S]
    script.start(7, simulated("60s"), resources(expiration=START_AT + 5))
    assert script(TimerFired(AGAIN)) == []
    assert script.journal is not first
    assert script.journal.payload == first.payload
    script.kvs[job_key(7, "eventlog")] = LONGER
    assert timers(begin_journal(script)) == [START_AT + 60]
    second = script.journal
    assert script(TimerFired(AGAIN)) == []
    assert script.journal is second


def test_journal_is_not_asked_for_again_while_the_job_manager_is_away() -> None:
    script = ExecScript()
    first = script.journal
    assert first is not None
    script(ended(first, Errno.EAGAIN, "too many wait"))
    script(gone("job-exec", MANAGER))
    assert script(TimerFired(AGAIN)) == []
    assert script.journal is first


def test_status_of_targets_that_a_full_inbox_refuses_is_asked_for_again() -> None:
    """28.offline.5: otherwise jobs would run on targets that are down."""
    core = ExecCore(ExecConfig(simulate=True))
    (hello,) = core.start(1.0)
    (_, asked) = core.turn(1.0, [Response(hello.topic, None, 0, hello.matchtag)])
    assert isinstance(asked, Request)
    refusal = Response(asked.topic, "too many wait", Errno.EAGAIN, asked.matchtag)
    assert timers(core.turn(1.0, [refusal])) == [1.0 + AGAIN_S]
    (again,) = core.turn(2.0, [TimerFired(AGAIN)])
    assert isinstance(again, Request)
    assert (again.topic, again.matchtag > asked.matchtag) == (topics.RESOURCE_STATUS, True)
    assert core.turn(3.0, [TimerFired(AGAIN)]) == []


def test_start_that_was_not_answered_is_forgotten_with_its_job_manager() -> None:
    script = ExecScript()
    script.put_resources(7, resources())
    (lookup,) = script.core.turn(START_AT, [start_request(7, simulated())])
    script.next_manager()
    found = Response(lookup.topic, {"value": script.kvs[job_key(7, "R")]}, 0, lookup.matchtag)
    assert told(script(found)) == []
    assert told(script(start_request(7, simulated("0s")))) == [("start",), ("finish", 0), RELEASE]


def test_job_that_is_over_is_forgotten() -> None:
    """32.start.37: nothing follows the final release."""
    script = ExecScript()
    actions = script.start(7, simulated())
    script.fire(actions)
    assert script(job_exception(7), TimerFired(actions[-1].key)) == []
    assert script.core.jobs.by_id == {}


def ended(request: Request, errnum: Errno, text: str) -> Response:
    return Response(request.topic, text, errnum, request.matchtag)


@pytest.mark.parametrize("seed", range(60))
def test_expirations_agree_at_rest_in_whatever_order_the_next_job_manager_speaks(seed: int) -> None:
    """A start before the journal or after it, updates stored before, between and after them."""
    rng = Random(seed)
    script = ExecScript()
    ends = timers(script.start(7, simulated("1d"), resources(expiration=START_AT + 5)))
    ends += timers(begin_journal(script))
    expiration, log = START_AT + 5.0, running(48.0)
    has_started = follows = True
    for act in [*rng.choices(["next", "start", "journal", "update", "update"], k=25), "start"]:
        if act == "next":
            script.next_manager()
            has_started = follows = False
        elif act == "start" and not has_started:
            ends += timers(script(start_request(7, simulated("1d"), reattach=True)))
            has_started = True
        elif act == "journal" and not follows:
            ends += timers(begin_journal(script))
            follows = True
        elif act == "update":
            expiration += rng.choice([-20.0, 10.0, 40.0]) if expiration > START_AT + 25 else 10.0
            log.append(event("resource-update", expiration=expiration))
            script.kvs[job_key(7, "eventlog")] = format_eventlog(log)
            if follows:
                ends += timers(script(journal(script, 7, expiration)))
    if not follows:
        ends += timers(begin_journal(script))
    assert ends[-1] == expiration
