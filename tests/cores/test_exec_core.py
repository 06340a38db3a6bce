"""The exec core: hello, simulated jobs, what the past says, the job manager going away."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.calls import PLACE
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.turns import ClearTimer, ClockStepped, Log, TimerFired
from flux_trio.editions import CURRENT
from flux_trio.formats import format_eventlog, job_key
from flux_trio.messages import ROLE_OWNER, Errno, Event, Flag, Request, Response, topics
from tests.support.asking import asked, asked_by_guest, service_back
from tests.support.eventlogs import event, raised, running
from tests.support.exec_script import (
    HELLO_AT,
    MANAGER,
    RELEASE,
    START_AT,
    TIMEOUT,
    ExecScript,
    job_exception,
    jobspec,
    journal,
    resources,
    simulated,
    start_request,
    streamed,
    timers,
    told,
)

LONGER = format_eventlog([*running(48.0), event("resource-update", expiration=START_AT + 90)])


# Hello


def test_start_before_hello_is_answered_was_meant_for_an_earlier_service() -> None:
    core = ExecCore(ExecConfig(simulate=True))
    (hello,) = core.start(1.0)
    (ignored,) = core.turn(1.0, [start_request(1, jobspec("true"))])
    assert ignored.text == "ignored the start of job 1: exec-hello is not in force"
    core.turn(1.0, [Response(hello.topic, None, 0, hello.matchtag)])
    asked = [
        each.topic
        for each in core.turn(1.0, [start_request(1, jobspec("true"))])
        if isinstance(each, Request)
    ]
    assert asked == ["kvs.lookup"]


def test_service_whose_hello_is_not_answered_says_no_second_one() -> None:
    """Another service comes and leaves meanwhile: the answer to the first hello decides."""
    core = ExecCore(ExecConfig(simulate=True))
    (hello,) = core.start(1.0)
    for place in ({"service": "other", "vacant": True}, {"service": "", "vacant": True}):
        core.turn(1.0, [Event(topics.EXEC_SERVICE_EVENT, place, rolemask=ROLE_OWNER)])
    (question,) = core.turn(3.0, [TimerFired(PLACE)])
    vacant = {"service": "", "vacant": True}
    assert core.turn(3.0, [Response(question.topic, vacant, 0, question.matchtag)]) == []
    core.turn(4.0, [Response(hello.topic, None, 0, hello.matchtag)])
    assert core.turn(5.0, [start_request(1, jobspec("true"))])


def test_first_hello_that_meets_enosys_waits_for_the_job_manager() -> None:
    "readings: Job manager gone. ENOSYS says that nobody holds the name; it is no answer to hello."
    core = ExecCore(ExecConfig(simulate=True))
    (hello,) = core.start(1.0)
    assert core.turn(1.0, [Response(hello.topic, "is gone", Errno.ENOSYS, hello.matchtag)]) == []
    (again,) = core.turn(2.0, [service_back(MANAGER)])
    assert again.topic == hello.topic


# Simulated jobs


def test_simulated_job_starts_runs_its_time_and_ends() -> None:
    """32.start.12-21, 32.start.31: start, finish and final release, each with id, type, data."""
    script = ExecScript()
    actions = script.start(7, simulated("2.5s"))
    assert told(actions) == [("start",)]
    assert timers(actions) == [START_AT + 2.5]
    assert told(script.fire(actions)) == [("finish", 0), RELEASE]


def test_one_lookup_is_all_that_a_new_simulated_job_needs() -> None:
    """16.schema.9: R is read from the KVS."""
    script = ExecScript()
    script.start(7, simulated())
    assert script.lookups == [job_key(7, "R")]


def test_job_of_no_duration_ends_in_the_turn_that_starts_it() -> None:
    script = ExecScript()
    assert told(script.start(7, simulated("0s"))) == [("start",), ("finish", 0), RELEASE]


@pytest.mark.parametrize("run_duration", ["60s", "1m", 60, 60.0])
def test_run_duration_is_a_duration_or_a_number_of_seconds(run_duration: Any) -> None:
    script = ExecScript()
    assert timers(script.start(7, simulated(run_duration))) == [START_AT + 60.0]


def test_configuration_can_make_every_job_a_simulated_one() -> None:
    script = ExecScript(simulate=True, has_shell=False)
    assert told(script.start(7, jobspec())) == [("start",), ("finish", 0), RELEASE]


def test_simulated_job_without_a_run_time_takes_its_time_limit_and_ends_well() -> None:
    script = ExecScript(simulate=True, has_shell=False)
    r = resources(starttime=105.0, expiration=135.0)
    actions = script.start(7, jobspec(duration=30.0), r)
    assert timers(actions) == [135.0]
    assert told(script.fire(actions)) == [("finish", 0), RELEASE]


def test_time_limit_wins_over_a_longer_run_time() -> None:
    """32.start.25, 32.start.26, 32.start.27, 32.start.29: as in the example, then the end."""
    script = ExecScript()
    actions = script.start(7, simulated("60s"), resources(expiration=START_AT + 5))
    assert timers(actions) == [START_AT + 5]
    assert told(script.fire(actions)) == [TIMEOUT, ("finish", 14), RELEASE]


def test_job_that_ends_just_at_its_time_limit_ends_well() -> None:
    script = ExecScript()
    actions = script.start(7, simulated("5s"), resources(expiration=START_AT + 5))
    assert told(script.fire(actions)) == [("finish", 0), RELEASE]


def test_new_expiration_moves_the_time_limit() -> None:
    script = ExecScript()
    script.start(7, simulated("60s"), resources(expiration=START_AT + 5))
    actions = script(journal(script, 7, START_AT + 90))
    assert timers(actions) == [START_AT + 60]
    actions = script(journal(script, 7, START_AT + 30))
    assert timers(actions) == [START_AT + 30]
    assert told(script.fire(actions))[0] == TIMEOUT


def test_expiration_that_changes_before_the_start_counts() -> None:
    script = ExecScript()
    script(journal(script, 7, START_AT + 90))
    actions = script.start(7, simulated("60s"), resources(expiration=START_AT + 5))
    assert timers(actions) == [START_AT + 60]


def test_expirations_of_jobs_that_never_start_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flux_trio.cores.exec.journal.UPDATES_MAX", 1)
    script = ExecScript()
    script(journal(script, 7, START_AT + 90), journal(script, 8, START_AT + 90))
    r = resources(expiration=START_AT + 5)
    assert timers(script.start(7, simulated("60s"), r)) == [START_AT + 5]
    r = resources({1: 1}, expiration=START_AT + 5)
    assert timers(script.start(8, simulated("60s"), r)) == [START_AT + 60]


def test_only_expirations_and_releases_are_asked_of_the_journal() -> None:
    for has_shell, names in ((True, ["resource-update", "release"]), (False, ["resource-update"])):
        script = ExecScript(has_shell=has_shell)
        assert script.journal is not None
        assert script.journal.flags == Flag.STREAMING
        assert script.journal.payload == {"allow": dict.fromkeys(names, 1)}


def test_malformed_journal_entry_is_logged_and_changes_nothing() -> None:
    script = ExecScript()
    assert script.journal is not None
    bad = {"timestamp": 1.0, "name": "resource-update", "context": {"expiration": "x"}}
    (log,) = script(streamed(script.journal, {"events": [[7, 9, bad]]}))
    assert isinstance(log, Log)
    assert "expiration" in log.text


def test_cancel_ends_a_simulated_job_at_once() -> None:
    """32.criteria.5: it still has a status, SIGTERM."""
    script = ExecScript()
    script.start(7, simulated("60s"))
    actions = script(job_exception(7))
    assert told(actions) == [("finish", 15), RELEASE]
    assert any(isinstance(action, ClearTimer) for action in actions)


def test_exceptions_that_are_not_fatal_or_not_of_the_job_manager_are_no_reason_to_stop() -> None:
    script = ExecScript()
    script.start(7, simulated("60s"))
    forged = job_exception(7)
    assert script(job_exception(7, severity=1)) == []
    assert script(type(forged)(forged.topic, forged.payload)) == []


def override(script: ExecScript, event: str, **more: Any) -> list[Any]:
    return script(asked("job-exec.override", {"jobid": 7, "event": event, **more}))


def errors(actions: list[Any]) -> list[tuple[int, str]]:
    return [
        (each.errnum, each.error_text)
        for each in actions
        if isinstance(each, Response) and each.topic == "job-exec.override"
    ]


def test_job_in_override_mode_starts_on_request_and_ends_by_itself() -> None:
    script = ExecScript()
    assert told(script.start(7, simulated("2.5s", override=1))) == []
    actions = override(script, "start")
    assert told(actions) == [("start",)]
    assert timers(actions) == [START_AT + 2.5]
    assert told(script.fire(actions)) == [("finish", 0), RELEASE]


def test_job_in_override_mode_without_a_time_ends_on_request() -> None:
    script = ExecScript()
    script.start(7, simulated("0s", override=1))
    actions = override(script, "start")
    assert (told(actions), timers(actions)) == ([("start",)], [])
    assert told(override(script, "finish", status=256)) == [("finish", 256), RELEASE]


def test_job_in_override_mode_that_is_canceled_never_starts() -> None:
    script = ExecScript()
    script.start(7, simulated("2.5s", override=1))
    assert told(script(job_exception(7))) == [RELEASE]
    assert errors(override(script, "start"))[0][0] == Errno.ENOENT


def test_override_is_for_jobs_of_that_mode_and_for_what_comes_next() -> None:
    script = ExecScript()
    script.start(7, simulated("60s"))
    assert errors(override(script, "finish")) == [(Errno.EINVAL, "the job is not in override mode")]
    script = ExecScript()
    script.start(7, simulated("60s", override=1))
    assert errors(override(script, "finish")) == [(Errno.EINVAL, "the job cannot finish now")]
    override(script, "start")
    assert errors(override(script, "start")) == [(Errno.EINVAL, "the job cannot start now")]


@pytest.mark.parametrize(
    ("mock", "text"),
    [("init", "mock initialization exception"), ("starting", "mock starting exception")],
)
def test_mock_exception_before_the_start(mock: str, text: str) -> None:
    """32.criteria.3, 32.start.34, 32.start.36: exception, and the release that must follow."""
    script = ExecScript()
    answers = told(script.start(7, simulated(mock_exception=mock)))
    assert answers == [("exception", 0, "exec", f"{text} generated"), RELEASE]


def test_mock_exception_while_it_runs() -> None:
    script = ExecScript()
    answers = told(script.start(7, simulated("60s", mock_exception="run")))
    exception = ("exception", 0, "exec", "mock run exception generated")
    assert answers == [("start",), exception, ("finish", 15), RELEASE]


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"run_duration": "soon"}, "attributes.system.exec.test: expected a duration"),
        ({"wait_status": "bad"}, "attributes.system.exec.test.wait_status: expected int"),
        ({"mock_exception": "end"}, "expected one of init, starting, run"),
    ],
)
def test_wrong_simulation_fails_the_job_and_says_where(test: dict[str, Any], words: str) -> None:
    script = ExecScript()
    (exception, release) = told(script.start(7, jobspec(test=test)))
    assert words in exception[3]
    assert release == RELEASE


# Starts that cannot be read

DEEP = '{"id": 7, "userid": 0, "jobspec": ' + '{"a": ' * 3000 + "1" + "}" * 3001


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (DEEP, 'expected a JSON object (at most 64 levels, integers of 64 bits), got \'{"id": 7'),
        ({"id": 7, "userid": 1, "jobspec": {}}, "missing required field `reattach`"),
        ({"id": 7, "userid": 1, "jobspec": [], "reattach": False}, "Expected `object`"),
    ],
)
def test_start_that_cannot_be_read_fails_its_job_and_says_why(payload: Any, words: str) -> None:
    """32.impl.5: the answers need nothing of it but the id."""
    script = ExecScript()
    unread = msgspec.structs.replace(start_request(7, simulated()), payload=payload)
    actions = script(unread)
    (kind, severity, type_, note), release = told(actions)
    assert (kind, severity, type_, release) == ("exception", 0, "exec", ("release", "all", True))
    assert words in note
    assert note in [each.text for each in actions if isinstance(each, Log)]


@pytest.mark.parametrize(
    "payload", [None, {"id": "7"}, {"id": True}, "{", '{"jobspec": {}, "id": 7}']
)
def test_start_that_names_no_job_is_logged_and_not_answered(payload: Any) -> None:
    (log,) = ExecScript()(msgspec.structs.replace(start_request(7, simulated()), payload=payload))
    assert log.text.startswith("job-exec.start: payload: ")


def test_repeated_start_that_cannot_be_read_attaches_to_the_job_that_runs() -> None:
    script = ExecScript()
    script.started(7, jobspec("true"))
    again = msgspec.structs.replace(start_request(7, jobspec("true")), payload={"id": 7})
    assert [each[0] for each in told(script(again))] == ["start"]
    assert [each[0] for each in told(script.end(7))] == ["finish", "release"]


# R


@pytest.mark.parametrize("flags", [Flag.STREAMING, 0])
def test_answers_to_a_start_have_the_flag_of_a_stream_if_the_start_has(flags: int) -> None:
    """6.streaming.4, and readings: Streaming flag of start."""
    script = ExecScript()
    actions = script(msgspec.structs.replace(start_request(7, simulated()), flags=flags))
    answers = [each for each in actions if isinstance(each, Response)]
    assert [each.flags for each in answers if each.topic == "job-exec.start"] == [flags, flags]


def test_job_without_r_gets_an_exception_and_a_release() -> None:
    """16.schema.9: it is not started."""
    script = ExecScript()
    answers = told(script(start_request(7, simulated())))
    assert answers == [("exception", 0, "exec", "the job has no R"), ("release", "all", True)]


def test_r_that_cannot_be_read_says_why() -> None:
    script = ExecScript(kvs={job_key(7, "R"): '{"version": 2}'})
    (exception, _) = told(script(start_request(7, simulated())))
    assert exception[3].startswith("R.version: expected")


def test_kvs_that_fails_fails_the_job_which_is_released_when_r_can_be_read() -> None:
    """32.start.20: a release that knows no R could not name the ranks of the job."""
    script = ExecScript()
    script.errors["kvs.lookup"] = (Errno.EIO, "disk on fire")
    script.put_resources(7, resources())
    actions = script(start_request(7, simulated()))
    (exception,) = told(actions)
    assert exception[3] == "cannot read R: disk on fire"
    actions = script.fire(actions)
    assert told(actions) == []
    del script.errors["kvs.lookup"]
    assert told(script.fire(actions)) == [RELEASE]


def test_r_that_stays_damaged_is_asked_for_less_and_less_often() -> None:
    script = ExecScript()
    script.errors["kvs.lookup"] = (Errno.EIO, "disk on fire")
    now, actions = START_AT, script(start_request(7, simulated()))
    waits = []
    for _ in range(8):
        (at,) = timers(actions)
        waits.append(at - now)
        now, actions = at, script.fire(actions)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    of_another = script(start_request(8, simulated()), now=now)  # it may be readable soon
    assert timers(of_another) == [now + 1.0]


def test_r_is_that_of_the_start_in_an_edition_that_has_it() -> None:
    script = ExecScript(edition=CURRENT)
    actions = script(start_request(7, simulated(), r=resources()))
    assert told(actions + script.fire(actions))[-1] == RELEASE
    assert script.lookups == []


@pytest.mark.parametrize(
    ("mistake", "ranks"),
    [
        ({"version": 2}, "0"),
        ({"execution": {"R_lite": [{"rank": "3-4"}, {"rank": "1"}]}}, "1,3-4"),
        ({"execution": {"R_lite": [{"rank": "3-"}]}}, "all"),
        ({"execution": {}}, "all"),
    ],
)
def test_r_with_a_mistake_is_released_as_far_as_it_names_ranks(
    mistake: dict[str, Any], ranks: str
) -> None:
    text = json.dumps(resources().to_json() | mistake)
    script = ExecScript(kvs={job_key(7, "R"): text})
    (exception, release) = told(script(start_request(7, simulated())))
    assert exception[3].startswith("R.")
    assert release == ("release", ranks, True)


def test_start_that_cannot_be_read_is_answered_with_the_ranks_of_its_job() -> None:
    script = ExecScript()
    script.put_resources(7, resources())
    start = start_request(7, simulated())
    wrong = msgspec.structs.replace(start, payload={"id": 7, "jobspec": 5})
    (exception, release) = told(script(wrong))
    assert (exception[:3], release) == (("exception", 0, "exec"), RELEASE)


def test_r_that_the_kvs_refuses_once_is_asked_for_again() -> None:
    """32.start.20: a release that knows no R could not name the ranks of the job."""
    script = ExecScript()
    script.refused_keys.add(job_key(7, "R"))
    assert told(script.start(7, simulated())) == [("start",)]
    assert script.lookups == [job_key(7, "R")] * 2


def test_real_job_without_a_shell_host_fails() -> None:
    script = ExecScript(has_shell=False)
    (exception, _) = told(script.start(7, jobspec("true")))
    assert "runs no processes" in exception[3]


# Requests


def test_start_without_an_id_cannot_be_answered_and_is_logged() -> None:
    """32.impl.5: an error response would be taken for a fatality of the service."""
    script = ExecScript()
    (log,) = script(asked("job-exec.start", {"jobspec": {}}, by=MANAGER, tag=0))
    assert isinstance(log, Log)
    assert log.text == "job-exec.start: payload: Object missing required field `id`"


def test_kill_ends_a_simulated_job_with_the_signal() -> None:
    script = ExecScript()
    script.start(7, simulated("60s"))
    actions = script(asked("job-exec.kill", {"id": 7, "signum": 10}))
    assert told(actions) == [("finish", 10), RELEASE]
    assert [a.errnum for a in actions if isinstance(a, Response)] == [0, 0, 0]


def test_kill_of_what_does_not_run_or_with_no_signal_is_refused() -> None:
    script = ExecScript()
    script.start(7, simulated("60s"))

    def refusal(jobid: int, signum: int) -> tuple[int, Any]:
        (answer,) = script(asked("job-exec.kill", {"id": jobid, "signum": signum}))
        return answer.errnum, answer.payload

    assert refusal(8, 15) == (Errno.ENOENT, "job ƒ9 is not running")
    assert refusal(7, 0) == (Errno.EINVAL, "signum: expected 1 to 64, got 0")
    assert script(asked_by_guest("job-exec.kill", {"id": 7, "signum": 15}))[0].errnum == Errno.EPERM


# The past


def test_reattached_simulated_job_counts_from_its_start() -> None:
    """32.start.10: it goes on instead of being started anew."""
    log = format_eventlog(running(START_AT - 12))
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    actions = script.start(7, simulated("60s"), resources(starttime=50.0), reattach=True)
    assert told(actions) == [("start",)]
    assert timers(actions) == [START_AT + 50]


def test_reattached_simulated_job_whose_time_is_past_ends() -> None:
    log = format_eventlog(running(START_AT - 92))
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    answers = told(script.start(7, simulated("60s"), reattach=True))
    assert answers == [("start",), ("finish", 0), RELEASE]


def test_expiration_that_changed_while_exec_was_away_counts() -> None:
    log = format_eventlog([*running(48.0)[:-1], event("resource-update", expiration=START_AT + 20)])
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    r = resources(starttime=50.0, expiration=START_AT + 5)
    assert timers(script.start(7, simulated("60s"), r)) == [START_AT + 20]


def test_job_canceled_while_exec_was_away_is_not_started() -> None:
    """readings: Final release without finish.

    The next exec service is asked, and says that nothing runs.
    """
    log = format_eventlog([*running(48.0)[:-1], raised("cancel")])
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    answers = told(script.start(7, simulated("60s"), resources(starttime=50.0)))
    assert answers == [RELEASE]


@pytest.mark.parametrize(
    ("allocated_at", "steps"),
    [(HELLO_AT - 1, [ClockStepped(-5.0)]), (START_AT + 1, [])],
    ids=["seen", "before the start of the service"],
)
def test_job_canceled_before_the_clock_was_set_back_is_not_started(
    allocated_at: float, steps: list[ClockStepped]
) -> None:
    """By the clock it was allocated after the hello, and its eventlog is read all the same."""
    log = format_eventlog([*running(48.0)[:-1], raised("cancel")])
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    now = START_AT + sum(each.by for each in steps)
    script(*steps, now=now)
    r = resources(starttime=allocated_at)
    assert told(script.start(7, simulated("60s"), r, now=now)) == [RELEASE]


def test_job_canceled_between_start_request_and_r_is_not_started() -> None:
    script = ExecScript()
    script.put_resources(7, resources())
    actions = script.core.turn(START_AT, [start_request(7, simulated()), job_exception(7)])
    (lookup,) = actions
    found = Response(lookup.topic, {"value": script.kvs[job_key(7, "R")]}, 0, lookup.matchtag)
    assert told(script(found)) == [RELEASE]


def test_past_that_cannot_be_read_fails_the_job() -> None:
    script = ExecScript(kvs={job_key(7, "eventlog"): "{"})
    (exception, _) = told(script.start(7, simulated(), resources(starttime=50.0)))
    assert exception[3].startswith("the job's eventlogs cannot be read: ")
