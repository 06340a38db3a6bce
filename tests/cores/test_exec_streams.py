"""Where the start stream of each job stands, as it shows: what is told again, what is forgotten."""

from __future__ import annotations

import pytest

from flux_trio.cores.exec.vocabulary import ShellConnected, ShellFailed
from flux_trio.messages import Response
from flux_trio.shell.protocol import Unknown
from tests.support.asking import asked, gone
from tests.support.exec_script import (
    MANAGER,
    RELEASE,
    START_AT,
    ExecScript,
    jobspec,
    resources,
    start_request,
    to_shell,
    told,
)


def jobs(script: ExecScript) -> dict[str, int]:
    """How many jobs the service knows, by phase; phases without a job are left out."""
    (answer,) = script(asked("job-exec.stats-get"))
    assert isinstance(answer, Response)
    assert isinstance(answer.payload, dict)
    counts: dict[str, int] = answer.payload["jobs"]
    return {phase: count for phase, count in counts.items() if count}


def test_job_that_cannot_be_started_is_forgotten_with_its_final_release() -> None:
    script = ExecScript()
    script.put_resources(7, resources())
    stranger = start_request(7, jobspec(), userid=4242)
    (exception, release) = told(script(stranger))
    assert (exception[0], release) == ("exception", RELEASE)
    assert jobs(script) == {}


def test_job_that_ran_and_is_not_found_again_is_forgotten_with_its_final_release() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    assert jobs(script) == {"running": 1}
    (exception, release) = told(script(Unknown(7)))
    assert (exception[0], release) == ("exception", RELEASE)
    assert jobs(script) == {}


@pytest.mark.parametrize("leaves", [False, True])
def test_job_that_runs_is_told_again_and_to_its_end(leaves: bool) -> None:
    """readings: Exec override. It attaches, whatever `reattach` says; nothing is launched twice."""
    script = ExecScript()
    script.started(7, jobspec())
    if leaves:
        script.next_manager()
    again = script(start_request(7, jobspec(), reattach=not leaves))
    assert (told(again), to_shell(again)) == ([("start",)], [])
    assert told(script.end(7)) == [("finish", 0), RELEASE]


def test_job_that_ends_while_there_is_no_job_manager_waits_to_be_told() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    script.next_manager()
    assert told(script.end(7)) == []
    assert jobs(script) == {"over": 1}
    again = script(start_request(7, jobspec(), reattach=True))
    assert told(again) == [("start",), ("finish", 0), RELEASE]
    assert jobs(script) == {}


def test_nothing_is_kept_of_a_job_whose_job_manager_leaves_before_it_was_read() -> None:
    script = ExecScript()
    script.core.turn(START_AT, [start_request(7, jobspec())])  # R is being read
    assert jobs(script) == {"preparing": 1}
    script.next_manager()
    assert jobs(script) == {}
    assert list(script.core._starts.streams) == []


@pytest.mark.parametrize("left_before", [False, True])
def test_end_in_the_turn_in_which_the_job_manager_leaves_is_told_to_the_next(
    left_before: bool,
) -> None:
    script = ExecScript()
    script.started(7, jobspec())
    leaves = gone("job-exec", MANAGER)
    actions = script(leaves) if left_before else []
    script.accept_hello([*actions, *script(Unknown(7), leaves)])
    assert jobs(script) == {"over": 1}
    again = told(script(start_request(7, jobspec(), reattach=True)))
    assert [each[0] for each in again] == ["start", "exception", "release"]
    assert jobs(script) == {}


def test_end_in_the_turn_in_which_both_leave_is_told_to_the_next_job_manager() -> None:
    script = ExecScript()
    script.started(7, jobspec())
    script(Unknown(7), ShellFailed("no shell host"), gone("job-exec", MANAGER))
    script.accept_hello(script(ShellConnected()))
    assert jobs(script) == {"over": 1}
    again = told(script(start_request(7, jobspec(), reattach=True)))
    assert [each[0] for each in again] == ["start", "exception", "release"]
    assert jobs(script) == {}
