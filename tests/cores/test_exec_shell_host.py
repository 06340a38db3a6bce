"""The execution service and its shell host: hello, withdrawal, what a lost one may have begun."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.vocabulary import ShellConnected, ShellFailed, ShellLost
from flux_trio.cores.turns import Log
from flux_trio.formats import Event, format_eventlog, job_key
from flux_trio.messages import Errno, Level, Request, Response
from flux_trio.shell.protocol import Ack, Attach, Done, Listing, Signal, Start, Started, Unknown
from tests.support.asking import service_back
from tests.support.eventlogs import inactive
from tests.support.exec_script import (
    MANAGER,
    ExecScript,
    job_exception,
    jobspec,
    resources,
    start_request,
    streamed,
    to_shell,
    told,
)

EXEC_LOG = "guest.exec.eventlog"


def test_job_waits_for_the_shell_host() -> None:
    script = ExecScript(connected=False)
    assert to_shell(script.start(7, jobspec("true"))) == []
    (start,) = to_shell(script(ShellConnected()))
    assert type(start) is Start


def test_all_that_matters_is_said_again_to_a_shell_host_that_is_back() -> None:
    script = ExecScript()
    script.start(7, jobspec("true"))
    script.started(8, jobspec(), resources({1: 1}))
    script(job_exception(8))
    (log,) = script(ShellLost("it died"))
    assert isinstance(log, Log)
    start, attach = to_shell(script(ShellConnected()))
    assert (type(start), start.id, attach) == (Start, 7, Attach(8))
    actions = script(Started(8))  # the signal may have been lost
    assert told(actions) == []
    assert to_shell(actions) == [Signal(8, 15)]


def requests(actions: list[Any]) -> list[tuple[str, Any]]:
    """The topics and payloads of requests."""
    return [(each.topic, each.payload) for each in actions if isinstance(each, Request)]


WITHDRAWAL = ("job-manager.disconnect", None)
HELLO = ("job-manager.exec-hello", {"service": "job-exec"})


def hindrance(reason: str) -> tuple[str, dict[str, str]]:
    """The request that tells why jobs wait."""
    return ("job-manager.hindrance", {"reason": reason})


def test_no_hello_is_said_before_a_shell_host_answers() -> None:
    "32.hello.1: a service that can start no job would fail every one it is given."
    core = ExecCore(ExecConfig(), has_shell=True)
    assert core.start(1.0) == []
    failed = core.turn(2.0, [ShellFailed("no space")])
    assert requests(failed) == [hindrance("no space")]
    assert [each.level for each in failed if isinstance(each, Log)] == [Level.ERR]
    assert core.turn(3.0, [ShellFailed("no space")]) == []  # said once
    assert requests(core.turn(4.0, [ShellFailed("no memory")])) == [hindrance("no memory")]
    assert requests(core.turn(5.0, [ShellConnected()])) == [hindrance(""), HELLO]


def test_simulated_jobs_need_no_shell_host() -> None:
    core = ExecCore(ExecConfig(simulate=True), has_shell=True)
    assert requests(core.start(1.0)) == [HELLO]
    assert requests(core.turn(2.0, [ShellFailed("no space")])) == [hindrance("no space")]


def test_next_job_manager_is_told_too_why_jobs_wait() -> None:
    core = ExecCore(ExecConfig(), has_shell=True)
    core.start(1.0)
    core.turn(2.0, [ShellFailed("no space")])
    assert requests(core.turn(3.0, [service_back(MANAGER)])) == [hindrance("no space")]


def test_service_withdraws_when_no_shell_host_can_be_started() -> None:
    """readings: Exec override.

    Its disconnect ends the starts; no job fails, and each is asked for again.
    """
    script = ExecScript(connected=False)
    script.start(7, jobspec("true"))
    actions = script(ShellFailed("no space"))
    assert told(actions) == []
    assert requests(actions) == [WITHDRAWAL, hindrance("no space")]
    assert script(ShellFailed("no space")) == []
    actions = script(ShellConnected())
    assert requests(actions) == [hindrance(""), HELLO]
    assert [type(each) for each in to_shell(actions)] == [Start]
    script(Response(HELLO[0], None, 0, actions[-1].matchtag))
    assert told(script.start(7, jobspec("true"))) == []
    assert told(script(Started(7))) == [("start",)]


def test_start_that_crosses_the_withdrawal_is_ignored() -> None:
    """32.start.3: the job manager ends its start streams when it takes up the disconnect."""
    core = ExecCore(ExecConfig(), has_shell=True)
    core.start(1.0)
    (hello,) = core.turn(2.0, [ShellConnected()])
    core.turn(2.0, [ShellLost("it died"), ShellFailed("no space")])
    answered = Response(hello.topic, None, 0, hello.matchtag)
    actions = core.turn(3.0, [answered, start_request(7, jobspec("true"))])
    assert requests(actions)[-2:] == [WITHDRAWAL, hindrance("no space")]
    assert "ignored the start of job 7" in [each.text for each in actions if type(each) is Log][-1]
    core.turn(4.0, [ShellConnected()])
    assert to_shell(core.turn(5.0, [ShellLost("it died"), ShellConnected()])) == []


def test_journal_that_the_withdrawal_has_ended_is_not_listened_to() -> None:
    script = ExecScript()
    first = script.journal
    script(ShellFailed("no space"))
    hello = script(ShellConnected())[-1]
    script(Response(hello.topic, None, 0, hello.matchtag))
    second = script.journal
    assert first is not None
    assert second is not None
    script(streamed(second, {"events": []}))
    late = Response(first.topic, "job-manager is gone", Errno.ENOSYS, first.matchtag)
    assert script(late) == []
    lost = Response(second.topic, "job-manager is gone", Errno.ENOSYS, second.matchtag)
    assert requests(script(lost)) == [HELLO]


def test_shell_host_that_fails_while_hello_is_under_way() -> None:
    core = ExecCore(ExecConfig(), has_shell=True)
    core.start(1.0)
    (hello,) = core.turn(2.0, [ShellConnected()])
    core.turn(2.0, [ShellLost("it died")])
    assert requests(core.turn(3.0, [ShellFailed("no space")])) == [hindrance("no space")]
    answered = core.turn(4.0, [Response(hello.topic, None, 0, hello.matchtag)])
    assert requests(answered)[-2:] == [WITHDRAWAL, hindrance("no space")]


def test_job_that_a_lost_shell_host_may_have_launched_is_not_given_up() -> None:
    """readings: Final release without finish. No resource is freed under live processes."""
    script = ExecScript()
    script.start(7, jobspec("true"))
    script(ShellLost("it died"))
    assert told(script(ShellFailed("no space"))) == []
    assert [request.id for request in to_shell(script(ShellConnected()))] == [7]


def test_ended_jobs_that_nobody_will_ask_for_are_acknowledged() -> None:
    complete = format_eventlog([Event(60.0, "complete", {"status": 0})])
    release = format_eventlog(inactive())
    script = ExecScript(
        kvs={
            job_key(7, EXEC_LOG): complete,
            job_key(7, "eventlog"): release,
            job_key(9, EXEC_LOG): complete,  # its release was told and is not stored
            job_key(10, "eventlog"): release,  # what it left is not stored
            job_key(11, EXEC_LOG): "damaged",
        }
    )
    script.started(8, jobspec())
    assert to_shell(script(Listing([7, 8, 9, 10, 11]))) == [Ack(7)]


@pytest.mark.parametrize("notice", [Started(9), Done(9, 0, 1), Unknown(9)])
def test_notices_of_other_jobs_are_nothing_to_us(notice: Any) -> None:
    assert ExecScript()(notice) == []
