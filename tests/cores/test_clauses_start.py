"""RFC 32, the job manager's side: each key of a start request, and how answers are logged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_trio.config import Config
from flux_trio.editions import CURRENT, EDITIONS
from tests.support.manager_script import JOBSPEC, USERID, ManagerScript, key

START = "job-exec.start"


@pytest.fixture
def start(m: ManagerScript) -> Any:
    """The start request of a job that has just got resources."""
    m.submit(1)
    m.alloc(1)
    return m.last(START)


def starts(m: ManagerScript) -> list[Any]:
    """The start requests so far."""
    return [each for each in m.messages if each.topic.endswith(".start")]


# The request


def test_start_has_the_streaming_flag_in_the_classic_edition_alone(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32.start.3, 6.streaming.4, and readings: Streaming flag of start."""
    assert start.is_streaming
    monkeypatch.setitem(EDITIONS, "current", CURRENT)
    m = ManagerScript(config=Config(edition="current"), peers=True)
    m.submit(1)
    m.store_r(1, {0: [0]})
    m.alloc(1, R=json.loads(m.kvs.value(f"{key(1)}.R") or ""))
    assert not m.last(START).is_streaming


def test_start_has_matchtag_0_and_four_keys(start: Any) -> None:
    """32.impl.1, 32.impl.2, 32.start.4-8, 32.background.4: no credentials."""
    assert start.matchtag == 0
    assert set(start.payload) == {"id", "userid", "jobspec", "reattach"}
    assert (start.payload["id"], start.payload["userid"]) == (1, USERID)
    assert start.payload["reattach"] is False
    assert isinstance(start.payload["jobspec"], dict)
    assert start.payload["jobspec"]["tasks"] == JOBSPEC["tasks"]


# When it is sent


def test_a_job_is_not_started_twice(m: ManagerScript) -> None:
    """32.impl.4: whatever happens to it before its final release."""
    m.running(1)
    m.raise_(1, 3)
    m.post(1, "memo", x=1)
    m.raise_(1)
    m.execute(1, "finish", "release 0")
    assert len(starts(m)) == 1


# The answers


def test_start_is_logged_when_the_service_says_so(m: ManagerScript) -> None:
    """32.start.17: not when it is asked."""
    m.submit(1)
    m.alloc(1)
    assert "start" not in m.names(1)
    m.execute(1, "start")
    assert m.names(1)[-1] == "start"
