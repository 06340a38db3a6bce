"""The job manager's account of what it waits for, in the trace."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.job_manager.requests import quiescence
from flux_trio.protocols import PluginInterests
from flux_trio.trace import Kind
from tests.support.manager_script import PRIORITIZE, ManagerScript


def accounts(m: ManagerScript) -> list[dict[str, Any]]:
    return [note.data for note in m.notes if note.kind == Kind.STATE]


def test_account_has_the_services_the_counts_and_every_job() -> None:
    m = ManagerScript(peers=True)
    m.running(1)
    m.submit(2)
    assert accounts(m)[-1] == {
        "service": "job-manager",
        "scheduler": "ready",
        "exec": "job-exec",
        "outstanding": 1,
        "waiting": 0,
        "jobs": [[1, "RUN", ""], [2, "SCHED", ""]],
    }


def test_account_says_what_a_plugin_holds() -> None:
    m = ManagerScript(hooks=[PRIORITIZE])
    m.submit(1)
    assert accounts(m)[-1]["jobs"] == [[1, "PRIORITY", "a plugin is being asked"]]


def test_no_account_while_something_is_not_answered() -> None:
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1)
    assert accounts(m) == []
    while m.commits:
        m.commit()
    assert len(accounts(m)) == 1


def test_no_account_while_the_trace_has_no_reader() -> None:
    m = ManagerScript(peers=True)
    m.put(PluginInterests(notes=False))
    m.submit(1)
    assert accounts(m) == []
    m.put(PluginInterests(notes=True))
    assert len(accounts(m)) == 1


def test_no_account_without_anything_new() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    before = len(accounts(m))
    m.stats()
    assert len(accounts(m)) == before


@pytest.mark.parametrize(
    ("count", "given"), [(quiescence.JOBS_MAX, 1), (quiescence.JOBS_MAX + 1, 0)]
)
def test_no_account_of_more_jobs_than_a_turn_has_time_for(count: int, given: int) -> None:
    m = ManagerScript()
    m.submit(*range(1, count + 1))
    assert len(accounts(m)) == given


def test_accounts_of_many_jobs_are_rare() -> None:
    m = ManagerScript()
    m.submit(*range(1, 101))
    before = len(accounts(m))
    for urgency in range(17, 29):  # two events each
        m.urgency(1, urgency)
    assert len(accounts(m)) == before
    m.urgency(1, 29)
    assert len(accounts(m)) == before + 1
