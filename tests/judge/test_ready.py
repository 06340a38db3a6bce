"""sched-ready: which ones the job manager has to accept."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import STREAMING
from tests.support.judged import hand_made, judge, made

SCHED, MANAGER = topics.SCHED, topics.JOB_MANAGER


@pytest.mark.parametrize(
    ("content", "is_valid"),
    [
        ({"mode": "unlimited"}, True),
        ({"mode": "unlimited", "limit": 4}, True),
        ({"mode": "unlimited", "limit": 0}, False),
        ({"mode": "limited", "limit": 4}, True),
        ({"mode": "limited", "limit": 0}, False),
        ({"mode": "limited"}, False),
    ],
)
def test_refusal_of_a_valid_ready_is_named(content: dict[str, Any], is_valid: bool) -> None:
    """27.ready.11 (readings: The limit of ready)."""
    trace = hand_made(
        made(SCHED, MANAGER, Request(topics.SCHED_HELLO, {}, 1, STREAMING, routes=(SCHED,))),
        made(MANAGER, SCHED, Response(topics.SCHED_HELLO, None, Errno.ENODATA, 1, STREAMING)),
        made(SCHED, MANAGER, Request(topics.SCHED_READY, content, 2, routes=(SCHED,))),
        made(MANAGER, SCHED, Response(topics.SCHED_READY, None, Errno.EINVAL, 2)),
    )
    found = [each.clause for each in judge(trace, ALL_RULES, cut=True).violations]
    assert ("27.ready.11" in found) == is_valid
