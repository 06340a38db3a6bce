"""Acquires that crossed something: the leave of the holder, the end of the resource service."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from tests.support.judged import Trace, hand_made, judge, made

RESOURCE = "resource"
LEFT = made("a", RESOURCE, Request(topics.disconnect_of(RESOURCE), flags=NORESPONSE))


def acquire(peer: str, group: str = "default") -> Trace:
    payload = {"group": group}
    return made(peer, RESOURCE, Request(topics.RESOURCE_ACQUIRE, payload, 1, STREAMING))


def refuse(peer: str) -> Trace:
    return made(RESOURCE, peer, Response(topics.RESOURCE_ACQUIRE, "busy", Errno.EBUSY, 1))


def other_turn() -> Trace:
    """The resource service has another turn, in which it answers."""
    asked = made("client", RESOURCE, Request(topics.RESOURCE_STATUS, None, 7))
    told = made(RESOURCE, "client", Response(topics.RESOURCE_STATUS, {}, 0, 7))
    return hand_made(asked, told)


def named(*steps: Any) -> set[str]:
    found = judge(hand_made(*steps), ALL_RULES, cut=True).violations
    return {each.clause for each in found} & {"28.disconnect.3", "28.impl.2"}


def test_a_group_whose_holder_leaves_in_the_turn_of_the_refusal_is_busy() -> None:
    turn = hand_made(acquire("a"), acquire("b"), LEFT, refuse("b"))
    assert named(turn) == set()


@pytest.mark.parametrize("group", ["default", "exclude"])
def test_a_group_that_was_left_before_is_not_busy(group: str) -> None:
    turn = hand_made(acquire("a"), LEFT, acquire("b", group))
    assert named(turn, refuse("b")) == {"28.disconnect.3"}


def test_a_group_that_was_left_in_an_earlier_turn_is_not_busy() -> None:
    turn = hand_made(acquire("a"), acquire("b"), LEFT, other_turn(), refuse("b"))
    assert named(turn) == {"28.disconnect.3"}


def test_a_group_that_was_left_in_the_turn_of_the_refusal_is_busy_beside_another_one() -> None:
    other = acquire("c", "exclude")
    turn = [acquire("a"), acquire("b"), LEFT]
    assert named(other, hand_made(*turn, refuse("b"))) == set()
    assert named(other, hand_made(*turn, other_turn(), refuse("b"))) == {"28.impl.2"}
