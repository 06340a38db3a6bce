"""Resources that are released before the job has ended: where SIGKILL has left no process of it."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.exec.calls import TimerKey, TimerKind
from flux_trio.cores.exec.real import STUCK_NOTE
from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.turns import TimerFired
from flux_trio.editions import CLASSIC, CURRENT, Edition
from flux_trio.formats import format_eventlog, job_key
from flux_trio.shell.protocol import Done, Started, Survey, Survivors
from tests.support.eventlogs import event, raised, running
from tests.support.exec_script import ExecScript, job_exception, jobspec, resources, told

R = resources({0: 1, 1: 1, 2: 1})
WIDE = jobspec("sleep", ntasks=3)
NOTE = ("exception", 2, "exec", STUCK_NOTE)


def fire(script: ExecScript, kind: TimerKind) -> list[Any]:
    return script(TimerFired(TimerKey(kind, 7)))


def stuck(edition: Edition = CLASSIC) -> ExecScript:
    """A job on three ranks that was canceled, and that SIGKILL has not ended."""
    script = ExecScript(edition=edition)
    script.started(7, WIDE, R)
    script(job_exception(7))
    fire(script, TimerKind.KILL)
    actions = fire(script, TimerKind.STUCK)
    assert told(actions) == [NOTE]
    assert ToShell(Survey(7)) in actions
    return script


@pytest.mark.parametrize("edition", [CLASSIC, CURRENT])
def test_ranks_without_a_process_are_released_and_the_rest_at_the_end(edition: Edition) -> None:
    """32.start.20: `final` is false while a rank is left."""
    script = stuck(edition)
    assert told(script(Survivors(7, [1]))) == [("release", "0,2", False)]
    assert told(script(Done(7, 9, 3))) == [("finish", 9), ("release", "1", True)]


def test_each_survey_releases_what_the_last_one_has_not() -> None:
    script = stuck()
    assert told(script(Survivors(7, [0, 1]))) == [("release", "2", False)]
    again = fire(script, TimerKind.STUCK)
    assert told(again) == []  # the note is told once
    assert ToShell(Survey(7)) in again
    assert told(script(Survivors(7, [0, 1]))) == []
    assert told(script(Survivors(7, [1]))) == [("release", "0", False)]


@pytest.mark.parametrize("tasks", [[0, 1, 2], []])
def test_nothing_is_released_while_all_ranks_have_a_process_or_the_end_comes(
    tasks: list[int],
) -> None:
    assert told(stuck()(Survivors(7, tasks))) == []


def test_survivors_of_a_job_that_is_not_stuck_release_nothing() -> None:
    script = ExecScript()
    script.started(7, WIDE, R)
    assert told(script(Survivors(7, [1]))) == []


def test_next_job_manager_is_told_all_releases_again() -> None:
    """readings: Exec override."""
    script = stuck()
    script(Survivors(7, [1]))
    script.next_manager()
    answers = told(script.start(7, WIDE, R, reattach=True))
    assert answers == [("start",), NOTE, ("release", "0,2", False)]


def test_next_service_releases_only_what_is_left() -> None:
    script = ExecScript()
    log = [*running(48.0), raised("cancel"), event("release", ranks="0,2", final=False)]
    script.kvs[job_key(7, "eventlog")] = format_eventlog(log)
    script.start(7, WIDE, R, reattach=True)
    script(Started(7))
    assert told(script(Done(7, 9, 3))) == [("finish", 9), ("release", "1", True)]
