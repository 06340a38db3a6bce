"""The two switches of a queue: each command sets one of them, wherever both are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from flux_trio.config import parse_config
from flux_trio.messages import topics
from tests.support.manager_script import ManagerScript, allocs

ONE: Final = parse_config("[queues.only]")
REASON: Final = "job submission to only is disabled: closed"

COMMANDS: Final[dict[str, Callable[[ManagerScript], Any]]] = {
    "enable": lambda m: m.enable("only"),
    "disable": lambda m: m.enable("only", enable=False, reason="closed"),
    "start": lambda m: m.queue("only", start=True),
    "stop": lambda m: m.queue("only", start=False),
}


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("is_started", [True, False], ids=["started", "stopped"])
@pytest.mark.parametrize("is_enabled", [True, False], ids=["enabled", "disabled"])
@pytest.mark.parametrize("command", COMMANDS)
def test_command_sets_one_switch_and_leaves_the_other(
    command: str, *, is_enabled: bool, is_started: bool, restarts: bool
) -> None:
    """33.admin.1, 33.admin.4: also once the job manager has read its checkpoint."""
    m = ManagerScript(config=ONE, peers=True)
    m.submit(1, urgency=0, queue="only")
    if not is_enabled:
        COMMANDS["disable"](m)
    if not is_started:
        COMMANDS["stop"](m)
    COMMANDS[command](m)
    if restarts:
        m = m.restarted(config=ONE, peers=True)
    takes = {"enable": True, "disable": False}.get(command, is_enabled)
    schedules = {"start": True, "stop": False}.get(command, is_started)
    m.submit(2, urgency=0, queue="only")
    assert m.last(topics.JOB_SUBMIT).payload["errors"] == ([] if takes else [[2, REASON]])
    assert allocs(m.urgency(1, 16)) == ([1] if schedules else [])
    m.ask(topics.JOB_QUEUE_STATUS, {"name": "only"})
    status = m.last(topics.JOB_QUEUE_STATUS).payload
    assert (status["enable"], status["start"]) == (takes, schedules)
