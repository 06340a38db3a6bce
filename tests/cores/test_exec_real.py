"""The exec core with processes: the shell host's side is played by the script."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_trio.cores.exec.exits import warning_of
from flux_trio.cores.exec.vocabulary import Chunk, FilePart, OutputRead, ReadOutput, ToShell
from flux_trio.formats import Event, Jobspec, format_eventlog, job_key, parse_eventlog
from flux_trio.messages import Errno, Request, Response
from flux_trio.shell.protocol import (
    Ack,
    Attach,
    Done,
    Failure,
    Signal,
    Start,
    Started,
    TaskSize,
    Unknown,
    WantsPmi,
)
from tests.support.asking import asked, gone
from tests.support.eventlogs import inactive, raised, running
from tests.support.exec_script import (
    MANAGER,
    RELEASE,
    START_AT,
    ExecScript,
    job_exception,
    jobspec,
    journal,
    resources,
    start_request,
    stored_release,
    streamed,
    timers,
    to_shell,
    told,
)

OLD = resources(starttime=50.0)  # allocated before the script's hello
GRACE_S = 5.0
EXEC_LOG = "guest.exec.eventlog"


def test_job_is_told_as_started_when_the_shell_host_says_so() -> None:
    """32.start.17, 32.background.1: launched on request, started when the shells have."""
    script = ExecScript()
    actions = script.start(7, jobspec("true"))
    (start,) = to_shell(actions)
    assert (type(start), start.id, start.argv) == (Start, 7, ["true"])
    assert told(actions) == []
    assert told(script(Started(7))) == [("start",)]


def test_instance_adds_to_the_environment() -> None:
    """14.attributes.4: to the variables of the jobspec, of which null unsets one."""
    script = ExecScript(environment={"FLUX_URI": "ws://here"})
    (start,) = to_shell(script.start(7, jobspec(environment={"A": "b", "C": None})))
    assert start.env["FLUX_URI"] == "ws://here"
    assert start.env["A"] == "b"
    assert "C" not in start.env


def test_the_environment_of_the_tasks_comes_from_the_stored_jobspec() -> None:
    """RFC 27, Alloc: messages may lack it; in all else the message counts."""
    script = ExecScript()
    stored = jobspec("old", environment={"A": "b"}, duration=1.0)
    script.kvs[job_key(7, "jobspec")] = json.dumps(stored)
    (start,) = to_shell(script.start(7, jobspec("new")))
    assert (start.argv, start.env["A"]) == (["new"], "b")


def test_a_stored_jobspec_that_cannot_be_read_fails_the_job() -> None:
    script = ExecScript()
    script.kvs[job_key(7, "jobspec")] = "{"
    (exception, release) = told(script.start(7, jobspec("true")))
    assert "the job's environment cannot be read: jobspec: expected" in exception[3]
    assert release == RELEASE


def test_finish_and_release_follow_the_commit_of_the_guest_data() -> None:
    """16.schema.10, 16.schema.11: exec.eventlog is in the KVS before the finish."""
    script = ExecScript()
    script.started(7, jobspec())
    commit, *others = script.core.turn(START_AT, [Done(7, 256, 1)])
    assert isinstance(commit, Request)
    assert commit.topic == "kvs.commit"
    assert told(others) == []
    answers = told(script(script._kvs(commit)))
    assert answers == [("finish", 256), RELEASE]
    names = [event.name for event in parse_eventlog(script.kvs[job_key(7, EXEC_LOG)])]
    assert names == ["init", "starting", "shell.start", "complete", "done"]


def test_shell_host_may_forget_the_job_once_its_release_is_stored() -> None:
    "Until then the instance may end and all that it was told with it: the next one asks again."
    script = ExecScript()
    script.started(7, jobspec())
    ended = script.end(7)
    assert told(ended) == [("finish", 0), RELEASE]
    assert to_shell(ended) == []
    assert to_shell(script(stored_release(script, 8, 7))) == [Ack(7)]
    assert to_shell(script(stored_release(script, 7))) == []


def test_release_in_parts_does_not_let_the_shell_host_forget() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    script.end(7)
    assert script.journal is not None
    part = {"timestamp": 1.0, "name": "release", "context": {"ranks": "0", "final": False}}
    assert to_shell(script(streamed(script.journal, {"events": [[7, 9, part]]}))) == []


def test_release_that_was_stored_while_nobody_told_is_looked_up() -> None:
    "The job manager was lost after its commit; the next one has nothing to say of the job."
    script = ExecScript()
    script.started(7, jobspec())
    script.started(8, jobspec())
    script.end(7)
    script.end(8)
    (hello,) = script(gone("job-exec", MANAGER))
    script.kvs[job_key(7, "eventlog")] = format_eventlog(inactive())
    script(Response(hello.topic, None, 0, hello.matchtag))
    assert script.journal is not None
    assert to_shell(script(streamed(script.journal, {"events": []}))) == [Ack(7)]
    assert to_shell(script(stored_release(script, 8))) == [Ack(8)]


def test_job_manager_without_a_journal_is_believed_when_it_was_told() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    script.end(7)
    assert script.journal is not None
    refused = Response(script.journal.topic, "no", Errno.ENOSYS, script.journal.matchtag)
    assert to_shell(script(refused)) == [Ack(7)]
    script.started(8, jobspec())
    assert to_shell(script.end(8)) == [Ack(8)]


def test_output_is_read_then_kept_in_the_kvs() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    (read,) = script(Done(7, 0, 1, [], [TaskSize(0, 3, 2)]))
    assert read == ReadOutput(1, 7, (FilePart(0, "stdout", 0, 3), FilePart(0, "stderr", 0, 2)))
    chunks = (Chunk(0, "stdout", 0, b"hi\n"), Chunk(0, "stderr", 0, b"\xff!"))
    assert told(script(OutputRead(1, 7, chunks)))[0] == ("finish", 0)
    contexts = [e.context for e in parse_eventlog(script.kvs[job_key(7, "guest.output")])]
    assert contexts[1:] == [
        {"stream": "stdout", "rank": "0", "data": "hi\n"},
        {"stream": "stderr", "rank": "0", "encoding": "base64", "data": "/yE="},
        {"stream": "stdout", "rank": "0", "eof": True},
        {"stream": "stderr", "rank": "0", "eof": True},
    ]


# Failures to start


def test_command_not_found_is_told_as_flux_does() -> None:
    """32.criteria.3"""
    script = ExecScript()
    script.start(7, jobspec("/no/such/command"))
    text = "/no/such/command: No such file or directory"
    answers = told(script(Started(7, Failure(0, text))))
    note = f"task 0 (host node0): start failed: {text}"
    assert answers == [("start",), ("exception", 0, "exec", note)]
    assert told(script.end(7, 32512)) == [("finish", 32512), RELEASE]


def test_tasks_before_the_one_that_failed_are_stopped() -> None:
    script = ExecScript()
    script.start(7, jobspec(ntasks=2), resources({0: 2}))
    assert to_shell(script(Started(7, Failure(1, "x: no")))) == [Signal(7, 15)]


def test_tasks_that_have_no_room_fail_the_job() -> None:
    """14.submit.4: the job fails and its resources return."""
    script = ExecScript()
    answers = told(script.start(7, jobspec(ntasks=3), resources({0: 2})))
    assert [kind for kind, *_ in answers] == ["exception", "release"]
    exception, release = answers
    assert "expected room for 3 slots of 1 cores, got rank0/core[0-1]" in exception[3]
    assert release == RELEASE


def test_bad_jobspec_fails_the_job() -> None:
    script = ExecScript()
    (exception, _) = told(script.start(7, {"version": 1}))
    assert "jobspec" in exception[3]


def test_job_of_a_guest_does_not_run_with_the_rights_of_the_owner() -> None:
    """32.background.3: that would need the IMP."""
    script = ExecScript()
    script.put_resources(7, resources())
    actions = script(start_request(7, jobspec("id"), userid=2000))
    assert to_shell(actions) == []
    (exception, release) = told(actions)
    assert exception[3] == "the job is user 2000's, but processes can run only as user 1000"
    assert release == RELEASE


# Being stopped


def test_cancel_sends_sigterm_and_sigkill_after_the_grace() -> None:
    """32.start.3: the stream stays open while shells run."""
    script = ExecScript()
    script.started(7, jobspec())
    actions = script(job_exception(7))
    assert to_shell(actions) == [Signal(7, 15)]
    assert timers(actions) == [START_AT + GRACE_S]
    assert told(actions) == []
    assert to_shell(script.fire(actions)) == [Signal(7, 9)]
    assert told(script.end(7, 9)) == [("finish", 9), RELEASE]


def test_second_exception_does_not_start_the_grace_anew() -> None:
    """readings: Severity 0 exceptions after the first.

    The first fatal exception is the root cause.
    """
    script = ExecScript()
    script.started(7, jobspec())
    script(job_exception(7))
    assert script(job_exception(7, "timeout")) == []


def test_time_limit_is_an_exception_and_a_signal() -> None:
    """32.start.29."""
    script = ExecScript()
    actions = script.started(7, jobspec(), resources(expiration=START_AT + 9))
    actions = script.fire(actions)
    assert told(actions) == [("exception", 0, "timeout", "resource allocation expired")]
    assert to_shell(actions) == [Signal(7, 14)]
    assert told(script.end(7, 14)) == [("finish", 14), RELEASE]


def test_a_job_that_goes_on_past_its_time_limit_can_be_canceled() -> None:
    """The exception of the time limit itself comes back, and means nothing new."""
    script = ExecScript()
    actions = script.started(7, jobspec(), resources(expiration=START_AT + 9))
    script.fire(actions)
    assert script(job_exception(7, "timeout")) == []
    assert to_shell(script(job_exception(7))) == [Signal(7, 15)]
    assert script(job_exception(7)) == []


WARNED = {"system.shell.options.signal": {"signum": 12, "timeleft": "4s"}}


def test_signal_comes_before_the_time_limit() -> None:
    script = ExecScript()
    r = resources(expiration=START_AT + 9)
    actions = script.started(7, jobspec(attributes=WARNED), r)
    assert timers(actions) == [START_AT + 9, START_AT + 5]
    assert to_shell(script.fire(actions)) == [Signal(7, 12)]
    assert told(script.fire(actions, 0))[0][:3] == ("exception", 0, "timeout")


def test_signal_moves_with_the_time_limit_and_comes_at_once_if_it_is_due() -> None:
    script = ExecScript()
    actions = script.started(7, jobspec(attributes=WARNED), resources(expiration=START_AT + 3))
    assert timers(actions) == [START_AT + 3, START_AT]
    assert timers(script(journal(script, 7, START_AT + 20))) == [START_AT + 20, START_AT + 16]
    assert timers(script(journal(script, 7, 0.0))) == []


def test_signal_is_not_sent_to_a_job_that_ends_or_has_no_limit() -> None:
    script = ExecScript()
    assert timers(script.started(8, jobspec(attributes=WARNED))) == []
    actions = script.started(7, jobspec(attributes=WARNED), resources(expiration=START_AT + 9))
    script(job_exception(7))
    assert to_shell(script.fire(actions)) == []


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("USR1", "system.shell.options.signal: expected object, got str"),
        ({"signum": 65}, "system.shell.options.signal.signum: expected int"),
        ({"timeleft": "soon"}, "system.shell.options.signal.timeleft: expected a duration"),
    ],
)
def test_signal_that_cannot_be_read_is_an_exception(option: Any, text: str) -> None:
    script = ExecScript()
    spec = jobspec(attributes={"system.shell.options.signal": option})
    (exception, release) = told(script.start(7, spec))
    assert exception[3].startswith(text)
    assert release == RELEASE


@pytest.mark.parametrize(
    ("option", "warning"),
    [(1, (10, 60.0)), (0, None), ({"timeleft": 0}, None), ({"signum": 2}, (2, 60.0))],
)
def test_signal_has_defaults(option: Any, warning: tuple[int, float] | None) -> None:
    spec = jobspec(attributes={"system.shell.options.signal": option})
    assert warning_of(Jobspec.parse(spec)) == warning


def test_job_canceled_while_it_is_launched_is_stopped_when_it_runs() -> None:
    script = ExecScript()
    script.start(7, jobspec())
    assert to_shell(script(job_exception(7))) == []
    assert to_shell(script(Started(7))) == [Signal(7, 15)]


def test_kill_request_reaches_the_processes() -> None:
    script = ExecScript()
    script.start(7, jobspec())
    (refusal,) = script(asked("job-exec.kill", {"id": 7, "signum": 10}))
    assert (refusal.errnum, refusal.payload) == (Errno.EINVAL, "job ƒ8 is not running")
    script(Started(7))
    assert to_shell(script(asked("job-exec.kill", {"id": 7, "signum": 10}))) == [Signal(7, 10)]


# Reattaching


def test_reattach_never_launches() -> None:
    """32.start.10: the shells are recovered instead of being launched anew."""
    script = ExecScript()
    actions = script.start(7, jobspec("true"), OLD, reattach=True)
    assert to_shell(actions) == [Attach(7)]
    assert told(script(Started(7))) == [("start",)]


def test_reattach_to_what_is_gone_is_an_exception_and_a_release() -> None:
    """32.start.10: a fatal exception, and the final release all the same."""
    script = ExecScript()
    script.start(7, jobspec("true"), OLD, reattach=True)
    (exception, release) = told(script(Unknown(7)))
    assert exception == ("exception", 0, "exec", "reattach: the shell host does not know the job")
    assert release == RELEASE


def test_job_that_an_earlier_exec_saw_end_is_told_from_the_kvs() -> None:
    """16.schema.11: what was stored before the finish answers for it."""
    log = format_eventlog([Event(60.0, "init"), Event(70.0, "complete", {"status": 512})])
    script = ExecScript(kvs={job_key(7, EXEC_LOG): log})
    actions = script.start(7, jobspec("true"), OLD)
    assert told(actions) == [("start",), ("finish", 512), RELEASE]
    assert to_shell(script(stored_release(script, 7))) == [Ack(7)]


def test_job_canceled_while_exec_was_away_is_looked_for_and_stopped() -> None:
    """readings: Final release without finish. No resource is freed under live processes."""
    log = format_eventlog([*running()[:-1], raised("cancel")])
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    assert to_shell(script.start(7, jobspec("true"), OLD)) == [Attach(7)]
    assert to_shell(script(Started(7))) == [Signal(7, 15)]


def test_job_canceled_while_exec_was_away_and_never_launched_is_released() -> None:
    log = format_eventlog([*running()[:-1], raised("cancel")])
    script = ExecScript(kvs={job_key(7, "eventlog"): log})
    script.start(7, jobspec("true"), OLD)
    assert told(script(Unknown(7))) == [RELEASE]


def test_end_that_no_shell_host_saw_is_an_exception() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    (exception, finish, _) = told(script(Done(7, 256, 1, [0])))
    assert "task 0: end not seen" in exception[3]
    assert finish == ("finish", 256)


def test_files_that_were_changed_are_an_exception_that_names_them() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    damage = ["/s/jobs/7.record: line 3: expected 5, got 6", "/s/jobs/7.0.out: expected 1 byte"]
    (exception, finish, _) = told(script(Done(7, 0, 1, damage=damage)))
    assert exception == ("exception", 0, "exec", f"damaged: {damage[0]}; {damage[1]}")
    assert finish == ("finish", 0)


def test_job_whose_task_asks_for_pmi_fails_with_a_sentence_and_is_ended() -> None:
    script = ExecScript()
    script.started(7, jobspec("true"))
    actions = script(WantsPmi(7), WantsPmi(7), WantsPmi(8))
    (raised,) = told(actions)
    assert raised[:3] == ("exception", 0, "exec")
    assert "asked for PMI" in raised[3]
    assert ToShell(Signal(7, 15)) in actions
    assert [each[0] for each in told(script.end(7, 15))] == ["finish", "release"]
