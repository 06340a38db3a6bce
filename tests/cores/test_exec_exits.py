"""The shell options `exit-timeout` and `exit-on-error`: what the first exit of a job means."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.turns import ClearTimer, SetTimer
from flux_trio.shell.protocol import FirstExit, Signal
from tests.support.exec_script import RELEASE, START_AT, ExecScript, jobspec, resources, told

KILLED = FirstExit(7, 1, 137 << 8, "Killed")
WELL = FirstExit(7, 1, 0, "Exit 0")


def running(**options: Any) -> ExecScript:
    """Two tasks run, with these shell options."""
    script = ExecScript()
    spec = jobspec(ntasks=2, attributes={"system.shell.options": options} if options else {})
    script.started(7, spec, resources({0: 2}))
    return script


def due(actions: list[Any]) -> list[float]:
    """In how many seconds the timers of `actions` fire."""
    return [action.at - START_AT for action in actions if isinstance(action, SetTimer)]


def signals(actions: list[Any]) -> list[int]:
    """The signals that are sent to the job."""
    requests = [action.request for action in actions if isinstance(action, ToShell)]
    return [each.signum for each in requests if isinstance(each, Signal)]


@pytest.mark.parametrize(
    ("options", "notice", "seconds"),
    [
        ({}, WELL, [30.0]),
        ({}, KILLED, [30.0]),
        ({"exit-timeout": "1m"}, WELL, [60.0]),
        ({"exit-timeout": 2.5}, WELL, [2.5]),
        ({"exit-timeout": "none"}, KILLED, []),
        ({"exit-timeout": "NONE"}, KILLED, []),
        ({"exit-timeout": "inf"}, KILLED, []),
        ({"exit-on-error": 1}, WELL, [30.0]),
        ({"exit-on-error": 1}, KILLED, [0.0]),
        ({"exit-on-error": 1, "exit-timeout": "none"}, KILLED, [0.0]),
        ({"exit-on-error": 1, "exit-timeout": "none"}, WELL, []),
    ],
)
def test_time_that_the_other_tasks_have(
    options: dict[str, Any], notice: FirstExit, seconds: list[float]
) -> None:
    assert due(running(**options)(notice)) == seconds


@pytest.mark.parametrize(
    ("options", "notice", "note"),
    [
        ({}, WELL, "exited (Exit 0) and exit-timeout=30s has expired"),
        ({"exit-timeout": 5}, KILLED, "exited (Killed) and exit-timeout=5s has expired"),
        ({"exit-on-error": 1}, KILLED, "failed (Killed) and exit-on-error is set"),
        ({"exit-on-error": 1}, FirstExit(7, 1, 1 << 8, ""), "failed and exit-on-error is set"),
    ],
)
def test_job_that_goes_on_too_long_fails_with_the_status_of_its_first_task(
    options: dict[str, Any], notice: FirstExit, note: str
) -> None:
    """In flux-core's words."""
    script = running(**options)
    ended = script.fire(script(notice))
    assert signals(ended) == [15]
    assert told(ended) == [("exception", 0, "exec", f"true: task rank 1 on host node0 {note}")]
    assert told(script.end(7, 143 << 8))[0] == ("finish", notice.status)


def test_job_that_ends_in_time_has_its_own_status() -> None:
    script = running()
    (timer,) = [each for each in script(KILLED) if isinstance(each, SetTimer)]
    ended = script.end(7, 137 << 8)
    assert told(ended) == [("finish", 137 << 8), RELEASE]
    assert ClearTimer(timer.key) in ended


def test_first_exit_that_is_told_again_sets_no_other_time() -> None:
    script = running()
    script(KILLED)
    assert due(script(KILLED)) == []


@pytest.mark.parametrize("value", ["x", -1, True, [], None])
def test_what_is_no_time_fails_the_job(value: Any) -> None:
    script = ExecScript()
    spec = jobspec(attributes={"system.shell.options": {"exit-timeout": value}})
    answers = told(script.start(7, spec))
    if value is None:
        assert answers == []
        return
    (_, severity, _, note), _ = answers
    assert severity == 0
    assert note.startswith("system.shell.options.exit-timeout: expected a duration")
