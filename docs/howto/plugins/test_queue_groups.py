"""Tests of queue-groups."""

import pytest
from queue_groups import QueueGroups

from flux_trio.messages import FluxError
from flux_trio.testing import Rejected

QUEUES = """
[queues.debug]
[queues.batch]
[policy.jobspec.defaults.system]
queue = "batch"
"""
USERS = {1001: ("alice", ["ops"]), 1002: ("bob", ["users"])}


@pytest.fixture
def harness(plugin_harness):
    plugin = QueueGroups()
    plugin.conf = {"debug": ["ops", "staff"]}
    return plugin_harness(plugin, config=QUEUES, users=USERS)


def submit(harness, userid, queue):
    return harness.submit(userid=userid, attributes={"system.queue": queue})


def test_queue_is_for_its_groups(harness):
    submit(harness, 1001, "debug")
    submit(harness, 1002, "batch")
    with pytest.raises(Rejected, match=r"^queue debug is for members of ops and staff$"):
        submit(harness, 1002, "debug")


def test_job_cannot_be_moved_there_either(harness):
    job = submit(harness, 1002, "batch")
    with pytest.raises(FluxError, match="queue debug is for members of"):
        job.update({"attributes.system.queue": "debug"}, userid=1002)
