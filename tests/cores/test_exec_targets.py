"""A target goes down: the exec core ends the jobs on it, and starts none there."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.exec.vocabulary import ShellConnected
from flux_trio.cores.turns import Log
from flux_trio.messages import ROLE_USER, Event, topics
from flux_trio.shell.protocol import Attach, Signal, Start, Started
from tests.support.asking import service_back
from tests.support.exec_script import (
    ExecScript,
    jobspec,
    offline,
    online,
    resources,
    to_shell,
    told,
)

SIGTERM, SIGKILL = 15, 9
TWO_NODES = resources({0: 1, 1: 1})
HOUR = {"run_duration": "1h"}


def lost(where: str, why: str = "") -> tuple[Any, ...]:
    """The fatal exception that names the target."""
    return ("exception", 0, "exec", f"{where} is down{f': {why}' if why else ''}")


def test_simulated_job_on_a_target_that_goes_down_ends_with_an_exception_that_names_it() -> None:
    """28.offline.5: the execution system takes the active role."""
    script = ExecScript()
    script.start(7, jobspec(test=HOUR), TWO_NODES)
    script.start(8, jobspec(test=HOUR), resources({2: 1}))
    assert told(script(offline("1,3", "fan"))) == [
        lost("node1 (rank 1)", "fan"),
        ("finish", SIGTERM),
        ("release", "0-1", True),
    ]
    assert told(script(offline("1,3", "fan"))) == [], "the other job has none of them"


def test_tasks_on_other_targets_are_ended_too_and_by_force_if_need_be() -> None:
    script = ExecScript()
    script.started(7, jobspec("sleep", ntasks=2), TWO_NODES)
    actions = script(offline("1"))
    assert told(actions) == [lost("node1 (rank 1)")]
    assert to_shell(actions) == [Signal(7, SIGTERM)]
    killed = script.fire(actions)
    assert to_shell(killed) == [Signal(7, SIGKILL)]
    (note,) = told(script.fire(killed))
    assert note[:3] == ("exception", 2, "exec"), "what does not end even so is said"
    assert "stay allocated" in note[3]
    assert note[3].endswith("node1 (rank 1) is down"), "and on which target that may be"
    assert told(script.end(7, SIGKILL))[-1] == ("release", "0-1", True)


def test_job_that_is_canceled_already_gets_no_second_exception() -> None:
    script = ExecScript()
    script.started(7, jobspec("sleep"))
    script(Event("job-exception", {"id": 7, "type": "cancel", "severity": 0}, rolemask=1))
    assert told(script(offline("0"))) == []


def test_job_with_a_target_that_is_down_is_never_launched() -> None:
    """It was allocated before the target went down, and sent after that."""
    script = ExecScript()
    script(offline("1"))
    for jobid, test in ((7, None), (8, HOUR)):
        actions = script.start(jobid, jobspec("sleep", ntasks=2, test=test), TWO_NODES)
        assert told(actions) == [lost("node1 (rank 1)"), ("release", "0-1", True)]
        assert not any(isinstance(each, Start) for each in to_shell(actions))


def test_launch_that_waits_for_the_shell_host_is_given_up() -> None:
    script = ExecScript(connected=False)
    script.start(7, jobspec("sleep"))
    assert told(script(offline("0"))) == [lost("node0 (rank 0)")]
    sent = to_shell(script(ShellConnected()))
    assert Attach(7) in sent
    assert not any(isinstance(each, Start) for each in sent)


def test_launch_that_crosses_the_news_is_ended_once_it_has_started() -> None:
    script = ExecScript()
    script.start(7, jobspec("sleep"))
    assert told(script(offline("0"))) == [lost("node0 (rank 0)")]
    actions = script(Started(7))
    assert told(actions) == [("start",)]
    assert to_shell(actions) == [Signal(7, SIGTERM)]


def test_job_that_runs_when_the_service_starts_is_ended_if_its_target_went_down_meanwhile() -> None:
    """The service that comes later is told by resource.status."""
    script = ExecScript(down={"0": "gone"})
    actions = script.start(7, jobspec("sleep"), resources(starttime=50.0), reattach=True)
    assert told(actions) == [lost("node0 (rank 0)", "gone")]
    assert to_shell(actions) == [Attach(7)]
    assert to_shell(script(Started(7))) == [Signal(7, SIGTERM)]


def test_next_resource_service_is_asked_what_is_down() -> None:
    script = ExecScript()
    script.start(7, jobspec(test=HOUR))
    script.down = {"0": "gone"}
    assert told(script(service_back(topics.RESOURCE)))[0] == lost("node0 (rank 0)", "gone")


def test_target_that_is_up_again_takes_jobs() -> None:
    script = ExecScript()
    script(offline("0-1"), online("0"))
    assert told(script.start(7, jobspec(test=HOUR))) == [("start",)]
    assert told(script.start(8, jobspec(test=HOUR), TWO_NODES))[0] == lost("node1 (rank 1)")


@pytest.mark.parametrize("payload", [{"targets": 3}, {"targets": "1-"}, {}])
def test_news_that_cannot_be_read_are_logged_and_change_nothing(payload: dict[str, Any]) -> None:
    script = ExecScript()
    script.start(7, jobspec(test=HOUR))
    (log,) = script(Event(topics.RESOURCE_OFFLINE_EVENT, payload, rolemask=1))
    assert isinstance(log, Log)
    assert topics.RESOURCE_OFFLINE_EVENT in log.text


def test_guest_cannot_take_targets_down() -> None:
    script = ExecScript()
    script.start(7, jobspec(test=HOUR))
    payload = {"targets": "0"}
    assert script(Event(topics.RESOURCE_OFFLINE_EVENT, payload, rolemask=ROLE_USER)) == []
