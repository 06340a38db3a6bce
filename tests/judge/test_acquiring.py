"""Acquires that crossed something: the leave of the holder, the end of the resource service."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import Idset, ResourceSet
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Kind
from tests.support.judged import Trace, hand_made, judge, made, made_note

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


# --- drains


def of_node(topic: str, client: str = "client") -> Trace:
    return made(client, RESOURCE, Request(topic, {"targets": "0"}, 5))


def answered(topic: str, party: str = RESOURCE, errnum: int = 0, payload: Any = None) -> Trace:
    return made(party, "client", Response(topic, payload, errnum, 5))


def untold(*steps: Any, online: str, then: Trace | None = None) -> set[str]:
    """The clauses that are broken by the first grow of the next resource service."""
    ended = made_note(Kind.MODULE.value, "broker", module=RESOURCE, what="crashed")
    began = made_note(Kind.MODULE.value, "broker", module=RESOURCE, what="started")
    offline = str(Idset.parse("0-1") - Idset.parse(online))
    grow = {"type": "grow", "resources": R, "online": online, "offline": offline}
    told = made(RESOURCE, "a", Response(topics.RESOURCE_ACQUIRE, grow, 0, 1, STREAMING))
    kept = [each for each in ALL_RULES if each.clause in TELLING]
    trace = hand_made(NOTED, *steps, ended, began, acquire("a"), told, then or [])
    return {each.clause for each in judge(trace, kept).violations}


R = ResourceSet.build(((rank, 1, 0) for rank in range(2)), "node{}".format).to_json()
NOTED = made_note(Kind.RESOURCE.value, RESOURCE, what="up", targets="1")
DRAIN, UNDRAIN = topics.RESOURCE_DRAIN, topics.RESOURCE_UNDRAIN
DRAINED = (of_node(DRAIN), answered(DRAIN))
TELLING = ("28.background.7", "28.criteria.2", "28.criteria.4")
"""What happens to targets is told."""
GONE = made("client", RESOURCE, Request(topics.disconnect_of(RESOURCE), flags=NORESPONSE))


def test_a_drain_outlasts_the_service() -> None:
    assert untold(*DRAINED, online="1") == set()
    assert untold(*DRAINED, online="0-1") == set(TELLING)


@pytest.mark.parametrize("online", ["1", "0-1"])
def test_an_undrain_that_the_service_has_not_answered_when_it_ended_may_be_done(
    online: str,
) -> None:
    refused = answered(UNDRAIN, "broker", Errno.ENOSYS)
    assert untold(*DRAINED, of_node(UNDRAIN), refused, online=online) == set()
    assert untold(*DRAINED, of_node(UNDRAIN), GONE, online=online) == set()
    assert untold(of_node(DRAIN), refused, online=online) == set()


@pytest.mark.parametrize("online", ["1", "0-1"])
def test_a_drained_target_that_was_excluded_when_the_service_ended_may_be_undrained(
    online: str,
) -> None:
    excluded = made_note(Kind.RESOURCE.value, RESOURCE, what="exclude", targets="0")
    assert untold(*DRAINED, excluded, online=online) == set()


def test_what_the_service_has_answered_is_known() -> None:
    refused = answered(UNDRAIN, errnum=Errno.EINVAL)
    assert untold(*DRAINED, of_node(UNDRAIN), refused, online="0-1") == set(TELLING)
    assert untold(*DRAINED, of_node(UNDRAIN), answered(UNDRAIN), online="1") == {
        "28.background.7",
        "28.criteria.2",
    }


def test_what_the_next_service_says_of_itself_is_known() -> None:
    payload = {"drained": {"0": {"timestamp": 1.0, "reason": ""}}, "exclude": ""}
    status = made(RESOURCE, "client", Response(topics.RESOURCE_STATUS, payload, 0, 6))
    refused = answered(UNDRAIN, "broker", Errno.ENOSYS)
    story = (*DRAINED, of_node(UNDRAIN), refused)
    assert untold(*story, online="0-1", then=status) == set(TELLING)
    assert untold(*story, online="1", then=status) == set()
