"""Starts that the shell host could not do: the exec core waits, says why, and asks again."""

from __future__ import annotations

from typing import Any

from flux_trio.cores.exec.calls import TimerKey, TimerKind
from flux_trio.cores.exec.real import RETRIES_MAX, RETRY_S
from flux_trio.cores.exec.vocabulary import ShellConnected, ShellFailed, ShellLost
from flux_trio.cores.turns import ClockStepped, Log, TimerFired
from flux_trio.messages import Level, Request, topics
from flux_trio.shell.protocol import Attach, Postponed, Signal, Start, Started, Unknown
from tests.support.asking import service_back
from tests.support.exec_script import (
    MANAGER,
    RELEASE,
    START_AT,
    ExecScript,
    job_exception,
    jobspec,
    start_request,
    timers,
    to_shell,
    told,
)

NO_MEMORY = "no process can be made: Cannot allocate memory"
REASON = f"the shell host cannot start jobs now: {NO_MEMORY}"
RETRY = TimerFired(TimerKey(TimerKind.RETRY))


def reasons(actions: list[Any]) -> list[str]:
    """What the job manager is told of why jobs wait."""
    return [
        action.payload["reason"]
        for action in actions
        if isinstance(action, Request)
        and action.topic == topics.JOB_HINDRANCE
        and isinstance(action.payload, dict)
    ]


def logged(actions: list[Any]) -> list[tuple[int, str]]:
    """The lines for the log."""
    return [(action.level, action.text) for action in actions if isinstance(action, Log)]


def asked(actions: list[Any]) -> list[tuple[type, int]]:
    """What the shell host is asked, and for which job."""
    return [(type(request), request.id) for request in to_shell(actions)]


def postponed(script: ExecScript, *jobids: int) -> list[Any]:
    """Jobs whose start the host refuses for now; what the last refusal makes."""
    actions: list[Any] = []
    for jobid in jobids:
        script.start(jobid, jobspec("true"))
        actions = script(Postponed(jobid, NO_MEMORY))
    return actions


def test_start_that_is_postponed_fails_nothing_and_is_asked_for_again() -> None:
    script = ExecScript()
    actions = postponed(script, 7)
    assert told(actions) == []
    assert reasons(actions) == [REASON]
    assert logged(actions) == [(Level.ERR, REASON)]
    assert timers(actions) == [START_AT + RETRY_S]
    again = script.fire(actions)
    assert asked(again) == [(Start, 7)]
    assert to_shell(again)[0].argv == ["true"]
    refused = script(Postponed(7, NO_MEMORY), now=START_AT + RETRY_S)
    assert (told(refused), reasons(refused), logged(refused)) == ([], [], [])  # said once
    started = script(Started(7), now=START_AT + 2 * RETRY_S)
    assert told(started) == [("start",)]
    assert reasons(started) == [""]
    assert [level for level, _ in logged(started)] == [Level.INFO]


def test_job_is_asked_for_at_most_once_a_second() -> None:
    """However many refusals come, and whatever else starts: one timer, and none before its time."""
    script = ExecScript()
    first = postponed(script, 7)
    script.start(8, jobspec("true"), now=START_AT + 0.4)
    second = script(Postponed(8, NO_MEMORY), now=START_AT + 0.4)
    assert timers(second) == []  # or refusals would put it off for ever
    script.start(9, jobspec("true"), now=START_AT + 0.5)
    assert asked(script(Started(9), now=START_AT + 0.5)) == []
    assert asked(script.fire(first)) == [(Start, 7)]


def test_of_many_jobs_few_are_asked_for_until_one_starts() -> None:
    script = ExecScript()
    jobids = list(range(1, 2 * RETRIES_MAX + 1))
    postponed(script, *jobids)
    now = START_AT + RETRY_S
    again = script(RETRY, now=now)
    assert asked(again) == [(Start, jobid) for jobid in jobids[:RETRIES_MAX]]
    for jobid in jobids[:RETRIES_MAX]:
        script(Postponed(jobid, NO_MEMORY), now=now)
    last = script(RETRY, now=now + RETRY_S)
    assert asked(last) == [(Start, jobid) for jobid in jobids[RETRIES_MAX:]]  # each has its turn
    assert asked(script(Started(jobids[-1]), now=now + RETRY_S)) == [(Start, 1)]
    assert asked(script(Started(1), now=now + RETRY_S)) == [(Start, 2)]


def test_canceled_job_that_waits_is_given_up_at_once() -> None:
    """32.start.35: nothing of it was started, so that only the release is told."""
    script = ExecScript()
    postponed(script, 7)
    canceled = script(job_exception(7))
    assert asked(canceled) == [(Attach, 7)]
    assert reasons(canceled) == [""]
    assert told(script(Unknown(7))) == [RELEASE]


def test_job_that_is_canceled_while_it_is_asked_for_again_is_not_asked_for_once_more() -> None:
    script = ExecScript()
    script.fire(postponed(script, 7))
    assert asked(script(job_exception(7))) == [(Attach, 7)]
    refused = script(Postponed(7, NO_MEMORY))
    assert (asked(refused), reasons(refused)) == ([(Attach, 7)], [])
    script(Unknown(7))
    assert told(script(Unknown(7))) == []


def test_job_whose_first_tasks_run_is_stopped_when_it_is_canceled() -> None:
    script = ExecScript()
    postponed(script, 7)
    script(job_exception(7))
    actions = script(Started(7))
    assert told(actions)[0] == ("start",)
    assert [type(each) for each in to_shell(actions)] == [Signal]


def test_next_shell_host_is_asked_in_time_too() -> None:
    script = ExecScript()
    first = postponed(script, 7)
    script(ShellLost("it died"))
    assert asked(script(ShellConnected())) == []
    assert asked(script.fire(first)) == [(Start, 7)]


def test_next_job_manager_is_told_why_jobs_wait() -> None:
    script = ExecScript()
    postponed(script, 7)
    assert reasons(script(service_back(MANAGER))) == [REASON]


def test_repeated_start_of_a_job_that_waits_changes_nothing() -> None:
    script = ExecScript()
    first = postponed(script, 7)
    assert asked(script(start_request(7, jobspec("true")))) == []
    assert asked(script.fire(first)) == [(Start, 7)]


def test_lost_host_is_the_reason_as_long_as_there_is_none() -> None:
    script = ExecScript()
    postponed(script, 7)
    script(ShellLost("it died"))
    assert reasons(script(ShellFailed("no space"))) == ["no space"]
    assert reasons(script(ShellConnected())) == [REASON]


def test_step_of_the_wall_clock_delays_nobody() -> None:
    script = ExecScript()
    postponed(script, 7)
    script(ClockStepped(-3600.0), now=START_AT - 3600.0)
    assert asked(script(RETRY, now=START_AT - 3600.0 + RETRY_S)) == [(Start, 7)]


def test_job_that_the_shell_host_does_not_know_waits_no_more() -> None:
    script = ExecScript()
    actions = script.start(7, jobspec()) + script(Postponed(7, "no memory"))
    assert [kind for kind, *_ in told(script(Unknown(7)))] == ["exception", "release"]
    assert to_shell(script.fire(actions)) == []
