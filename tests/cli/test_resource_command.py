"""`flux-trio resource` on a real instance of two nodes."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.instance import RunningInstance

pytestmark = pytest.mark.real


def test_resources_are_listed_as_asked(instance: RunningInstance) -> None:
    assert instance.ok("resource", "list", "-n", "-o", "{state} {ncores}") == (
        "free 4\nallocated 0\ndown 0\n"
    )
    one = instance.ok("resource", "list", "-n", "-s", "all", "-i", "node1", "-o", "{nodelist}")
    assert one == "node1\n"
    assert instance.ok("resource", "list", "--skip-empty").splitlines()[-1].split()[0] == "free"
    assert instance.ok("resource", "info") == "2 Nodes, 4 Cores, 0 GPUs\n"
    assert instance.ok("resource", "info", "-i", "0", "-s", "free,down") == (
        "1 Node, 2 Cores, 0 GPUs\n"
    )
    r = json.loads(instance.ok("resource", "R", "-i", "1"))
    assert r["execution"]["nodelist"] == ["node1"]
    assert "default" in instance.ok("resource", "list", "-o", "help")


def test_status_follows_drains(instance: RunningInstance) -> None:
    form = "{state} {up.ascii} {ranks} {reason}"
    assert instance.ok("resource", "status", "-n", "-o", form) == "avail y 0-1\n"
    instance.ok("resource", "drain", "node1", "bad", "fan")
    assert instance.ok("resource", "status", "-n", "-o", form) == (
        "avail y 0\ndrained y 1 bad fan\n"
    )
    assert instance.ok("resource", "status", "-n", "-s", "drain", "-o", "{state} {nnodes}") == (
        "draining 0\ndrained 1\n"
    )
    again = instance.invoke("resource", "drain", "0-1", "worse")
    assert (again.exit_code, again.stderr) == (
        1,
        "flux-trio resource drain: ERROR: rank 1 already drained\n"
        "flux-trio resource drain: Use --force to overwrite existing drain reason\n",
    )
    instance.ok("resource", "drain", "-u", "0-1", "other")
    instance.ok("resource", "drain", "-f", "1", "new")
    listed = instance.ok("resource", "drain", "-n", "-o", "sort:ranks {ranks} {state} {reason}")
    assert listed == "0 drained other\n1 drained new\n"
    assert re.match(
        r"TIME +STATE +RANKS +REASON +NODELIST\n", instance.ok("resource", "drain", "-o", "long")
    )
    instance.ok("resource", "undrain", "0")
    assert instance.refused("resource", "undrain", "0-1") == "rank 0 not drained"
    instance.ok("resource", "undrain", "--update", "0-1", "all is well")
    assert instance.ok("resource", "drain", "-n") == ""


def test_a_state_that_there_is_not_names_those_there_are(instance: RunningInstance) -> None:
    assert instance.refused("resource", "list", "-s", "nosuch") == (
        "Invalid resource state nosuch specified; valid states: free,allocated,down,up,all"
    )
    told = instance.invoke("resource", "status", "-s", "help")
    assert (told.exit_code, "valid states: avail,exclude" in told.stderr) == (0, True)
    both = instance.invoke("resource", "drain", "-f", "-u", "0")
    assert "Only one of --force and --update may be specified" in both.stderr
    assert instance.refused("resource", "info", "-q", "nosuch") == "--queue: nosuch: no such queue"
    where = instance.invoke("resource", "list", "-i", "[")
    assert (where.exit_code, "--include: " in where.stderr) == (1, True)


def test_no_resources_have_no_r(instance: RunningInstance) -> None:
    assert (
        instance.refused("resource", "R", "-s", "down")
        == "no node matches, and R must have at least one"
    )


def test_nodes_that_have_failed_are_shown_with_the_reason(instance: RunningInstance) -> None:
    form = "{state} {ranks} {reason}"
    jobid = instance.submitted("--requires", "hosts:node1", "sleep", "100")
    instance.ok("job", "wait-event", "-q", jobid, "start")
    instance.ok("resource", "down", "node1", "no", "heartbeat")
    instance.over(jobid)
    log = instance.ok("job", "eventlog", jobid)
    assert 'type="exec" severity=0 note="node1 (rank 1) is down: no heartbeat"' in log
    assert instance.ok("resource", "status", "-n", "-s", "offline", "-o", form) == (
        "avail* 1 no heartbeat\n"
    )
    assert instance.ok("resource", "list", "-n", "-s", "down", "-o", "{nodelist}") == "node1\n"
    told = "1 of 2 nodes is down: see flux-trio resource status"
    assert instance.ok("queue", "status").splitlines()[-1] == told
    pending = instance.submitted("--requires", "hosts:node1", "true")
    instance.ok("resource", "up", "1")
    instance.over(pending)
    assert instance.refused("resource", "up", "node1") == "rank 1 not down"
