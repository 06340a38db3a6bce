"""The plugin access: users, groups and banks to queues and projects."""

from __future__ import annotations

from typing import Any

import pytest
from access import Access

from flux_trio.messages import FluxError
from flux_trio.protocols import JobState
from flux_trio.testing import PluginHarness, Rejected
from flux_trio.testing.pytest_plugin import StartHarness

ANN, BOB, STRANGER = 1001, 1002, 1999
USERS = {ANN: ("ann", ["ops"]), BOB: ("bob", ["staff"])}
CONF = {
    "queues": {"debug": {"users": ["bob"], "groups": ["ops"]}},
    "projects": {"fusion": {"banks": ["physics"]}},
}


@pytest.fixture
def harness(plugin_harness: StartHarness) -> PluginHarness:
    """Two queues, of which debug admits bob and the group ops."""
    plugin = Access()
    plugin.conf = CONF
    queues = '[queues.debug]\n[queues.batch]\n[policy.jobspec.defaults.system]\nqueue = "batch"\n'
    return plugin_harness(plugin, config=queues, users=USERS)


def submit(harness: PluginHarness, userid: int, **system: Any) -> JobState:
    attributes = {f"system.{key}": value for key, value in system.items()}
    return harness.submit(userid=userid, attributes=attributes).state


@pytest.mark.parametrize("userid", [ANN, BOB])
def test_any_list_admits(harness: PluginHarness, userid: int) -> None:
    assert submit(harness, userid, queue="debug") == JobState.SCHED


def test_who_is_in_no_list_is_refused_by_name(harness: PluginHarness) -> None:
    with pytest.raises(Rejected, match=r"^userid 1999 has no access to queue debug$"):
        submit(harness, STRANGER, queue="debug")
    with pytest.raises(Rejected, match=r"^user ann of bank arts has no access to project fusion$"):
        submit(harness, ANN, project="fusion", bank="arts")


def test_what_is_not_named_is_open(harness: PluginHarness) -> None:
    assert submit(harness, STRANGER) == JobState.SCHED
    assert submit(harness, STRANGER, project="iron") == JobState.SCHED


def test_a_bank_admits(harness: PluginHarness) -> None:
    assert submit(harness, STRANGER, project="fusion", bank="physics") == JobState.SCHED


def test_a_job_is_not_moved_to_where_its_user_may_not(harness: PluginHarness) -> None:
    job = harness.submit(userid=STRANGER)
    with pytest.raises(FluxError, match="userid 1999 has no access to queue debug"):
        job.update({"attributes.system.queue": "debug"})


def test_what_it_is_loaded_with_is_checked(plugin_harness: StartHarness) -> None:
    plugin = Access()
    plugin.conf = {"queues": {"debug": {"user": ["bob"]}}}
    with pytest.raises(Exception, match="access: Object contains unknown field `user`"):
        plugin_harness(plugin)
