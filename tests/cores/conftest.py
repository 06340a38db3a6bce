"""What most tests of a core begin with; a module that begins otherwise has its own fixture."""

from __future__ import annotations

import pytest

from tests.support.listing import ListedJobs
from tests.support.manager_script import ManagerScript
from tests.support.queue_script import TWO
from tests.support.sched_script import SchedScript
from tests.support.scheduling import machine


@pytest.fixture
def m() -> ManagerScript:
    """A job manager with a scheduler and an execution service."""
    return ManagerScript(peers=True)


@pytest.fixture
def alone() -> ManagerScript:
    """A job manager with an execution service, whose scheduler has not come yet."""
    m = ManagerScript()
    m.attach_exec()
    return m


@pytest.fixture
def listed() -> ListedJobs:
    """A job list that has started, and knows of no job."""
    listed = ListedJobs()
    listed.start()
    return listed


@pytest.fixture
def script() -> SchedScript:
    """A scheduler that is attached, with two nodes of two cores."""
    script = SchedScript()
    script.attach(machine(2, 2))
    return script


@pytest.fixture
def two() -> ManagerScript:
    """A job manager with two queues, a scheduler and an execution service."""
    return ManagerScript(config=TWO, peers=True)
