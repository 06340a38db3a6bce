"""What the execution service does only in the current edition, or for flux-core's job manager."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores.turns import Log, SetTimer
from flux_trio.editions import CURRENT
from flux_trio.formats import job_key
from flux_trio.messages import Errno, Level, Response
from tests.support.asking import asked, asked_by_guest
from tests.support.exec_script import (
    MANAGER,
    RELEASE,
    START_AT,
    ExecScript,
    job_exception,
    jobspec,
    resources,
    start_request,
    timers,
    told,
)

LONG = jobspec(test={"run_duration": "60s"})


def test_start_with_reattach_is_answered_with_reattached() -> None:
    """32.start.10: exactly one of the two, by what the request says."""
    script = ExecScript(edition=CURRENT)
    assert told(script.start(7, LONG)) == [("start",)]
    assert told(script.start(8, LONG, reattach=True)) == [("reattached",)]


def test_repeated_start_is_answered_by_what_it_says_itself() -> None:
    """32.start.10: the first answer was lost with its job manager."""
    script = ExecScript(edition=CURRENT)
    actions = script.start(7, LONG)
    script.next_manager()
    assert told(script(start_request(7, LONG, reattach=True, r=resources()))) == [("reattached",)]
    script.next_manager()
    again = script(start_request(7, LONG, r=resources()))
    assert (told(again), timers(again)) == ([("start",)], [])
    assert told(script.fire(actions)) == [("finish", 0), RELEASE]


@pytest.mark.parametrize(
    ("wait_status", "status"), [(256, 256), (0, 0), (15, (128 + 15) << 8), (15 | 0x80, 143 << 8)]
)
@pytest.mark.parametrize("is_read_back", [False, True])
def test_status_is_what_the_first_fatal_exception_says_in_the_form_of_a_shells_exit(
    wait_status: int, status: int, is_read_back: bool
) -> None:
    """32.start.32"""
    first = {"type": "exec", "severity": 0, "note": "", "wait_status": wait_status}
    if is_read_back:  # the service was away when the job was failed
        names: list[tuple[str, dict[str, Any]]] = [
            ("submit", {"userid": 1000, "urgency": 16, "flags": 0, "version": 1}),
            *[("validate", {}), ("depend", {}), ("priority", {"priority": 16})],
            *[("alloc", {}), ("start", {}), ("exception", first)],
            ("exception", {**first, "wait_status": 9}),
        ]
        log = "".join(
            msgspec.json.encode({"timestamp": START_AT, "name": name, "context": context}).decode()
            + "\n"
            for name, context in names
        )
        script = ExecScript(edition=CURRENT, kvs={job_key(7, "eventlog"): log})
        told_at_end = told(script.start(7, LONG, reattach=True))
        assert told_at_end == [("finish", status), RELEASE]
        return
    script = ExecScript(edition=CURRENT)
    script.start(7, LONG)
    script(job_exception(7, "exec", severity=1, wait_status=9))
    actions = script(job_exception(7, "exec", wait_status=wait_status))
    assert told(actions) == [("finish", status), RELEASE]


def test_second_fatal_exception_says_nothing_of_the_status() -> None:
    """32.start.32: the first one is the root cause."""
    script = ExecScript(edition=CURRENT)
    script.started(7, jobspec())
    script(job_exception(7))  # its processes end only later
    script(job_exception(7, "exec", wait_status=256))
    assert ("finish", 15) in told(script.end(7, 15))


def test_expiration_request_moves_the_time_limit() -> None:
    script = ExecScript(edition=CURRENT)
    script.start(7, LONG, resources(expiration=START_AT + 5))
    request = asked("job-exec.expiration", {"id": 7, "expiration": START_AT + 20}, by=MANAGER)
    actions = script(request)
    assert timers(actions) == [START_AT + 20]
    assert [each for each in actions if not isinstance(each, SetTimer)] == [
        Log(Level.DEBUG, f"updated expiration of ƒ8 to {START_AT + 20}"),
        Response("job-exec.expiration", None, 0, request.matchtag, routes=(MANAGER,)),
    ]


def test_expiration_of_a_job_that_is_not_here_is_refused() -> None:
    script = ExecScript(edition=CURRENT)
    request = asked("job-exec.expiration", {"id": 7, "expiration": 0.0}, by=MANAGER)
    (answer,) = script(request)
    assert (answer.errnum, answer.payload) == (Errno.ENOENT, "job ƒ8 is not running")


def test_guest_may_not_move_a_time_limit() -> None:
    script = ExecScript(edition=CURRENT)
    script.start(7, LONG)
    (answer,) = script(asked_by_guest("job-exec.expiration", {"id": 7, "expiration": 0.0}))
    assert answer.errnum == Errno.EPERM
