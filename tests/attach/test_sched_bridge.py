"""What our scheduler's core and flux-core say to each other, without either."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.attach.bridge import TAGS_AFTER
from flux_trio.attach.sched_bridge import PING_MANAGER, SchedBridge
from flux_trio.editions import CURRENT
from flux_trio.editions.kvs import CommitValues
from flux_trio.formats import treeobj
from flux_trio.messages import Errno, Event, Message, Request, Response, topics

KEYS = ["job.0000.0000.0000.0001.R", "job.0000.0000.0000.0002.R"]


@pytest.fixture
def bridge() -> SchedBridge:
    return SchedBridge()


def to_broker(bridge: SchedBridge, topic: str, payload: Any = None, tag: int = 5) -> list[Any]:
    return bridge.from_core(Request(topic, payload, tag)).to_broker


def answered(bridge: SchedBridge, request: Request, payload: Any = None, errnum: int = 0) -> Any:
    """What the core gets of the answer to a request at the broker."""
    answer = Response(request.topic, payload, errnum, request.matchtag, request.flags)
    return bridge.from_broker(answer).to_core


@pytest.mark.parametrize(
    "message",
    [
        Request(topics.SCHED_ALLOC, {"id": 1}, routes=("job-manager", "broker")),
        Response(topics.SCHED_ALLOC, {"id": 1, "type": 3}, routes=("job-manager", "broker")),
        Event("x.y", {}),
    ],
)
def test_rfc_27_passes_as_it_is(bridge: SchedBridge, message: Any) -> None:
    assert bridge.from_core(message).to_broker == [message]
    if not isinstance(message, Response):
        assert bridge.from_broker(message).to_core == [message]


def test_calls_have_matchtags_of_their_own_and_answers_find_back(bridge: SchedBridge) -> None:
    (acquire,) = to_broker(bridge, topics.RESOURCE_ACQUIRE, tag=7)
    (ready,) = to_broker(bridge, topics.SCHED_READY, {"mode": "unlimited"}, tag=7)
    assert TAGS_AFTER < acquire.matchtag != ready.matchtag > TAGS_AFTER
    (answer,) = answered(bridge, ready, {"count": 3})
    assert answer == Response(topics.SCHED_READY, {"count": 3}, 0, 7)
    assert answered(bridge, ready, {"count": 3}) == []  # it is over


def test_a_commit_passes_as_it_is(bridge: SchedBridge) -> None:
    asked = CURRENT.kvs.commit(CommitValues([["put", KEYS[0], "{}"], ["unlink", KEYS[1]]]))
    (commit,) = to_broker(bridge, topics.KVS_COMMIT, asked)
    assert commit.payload == {
        "namespace": "primary",
        "flags": 0,
        "ops": [
            {"key": KEYS[0], "flags": 0, "dirent": {"ver": 1, "type": "val", "data": "e30="}},
            {"key": KEYS[1], "flags": 0, "dirent": None},
        ],
    }
    (answer,) = answered(bridge, commit, "no", Errno.EPERM)
    assert answer == Response(topics.KVS_COMMIT, "no", Errno.EPERM, 5)


class TestLookups:
    @pytest.fixture
    def asked(self, bridge: SchedBridge) -> list[Request]:
        return to_broker(bridge, topics.STORE_OWN.lookup_all, {"keys": KEYS})

    def test_one_request_reads_one_key(self, asked: list[Request]) -> None:
        wanted = [{"key": key, "namespace": "primary", "flags": 0} for key in KEYS]
        assert [each.payload for each in asked] == wanted
        assert {each.topic for each in asked} == {topics.KVS_LOOKUP}

    def test_answer_comes_when_all_are_read_in_the_order_of_the_keys(
        self, bridge: SchedBridge, asked: list[Request]
    ) -> None:
        assert answered(bridge, asked[1], {"val": treeobj.val("two")}) == []
        (answer,) = answered(bridge, asked[0], {"val": treeobj.val("one")})
        assert answer == Response(topics.STORE_OWN.lookup_all, {"values": ["one", "two"]}, 0, 5)

    def test_key_that_is_absent_is_null(self, bridge: SchedBridge, asked: list[Request]) -> None:
        answered(bridge, asked[0], None, Errno.ENOENT)
        (answer,) = answered(bridge, asked[1], {"val": treeobj.val("two")})
        assert answer.payload == {"values": [None, "two"]}

    @pytest.mark.parametrize(
        ("payload", "errnum", "text"),
        [
            ("damaged", Errno.EIO, "{key}: damaged"),
            ({"value": 1}, 0, "{key}: kvs.lookup: payload: Expected `str`, got `int`"),
            (
                {"val": {"ver": 1, "type": "dir", "data": {}}},
                0,
                "{key}: kvs.lookup: payload.val: expected a treeobj of type val, got",
            ),
        ],
    )
    def test_error_names_the_key_and_comes_once(
        self, bridge: SchedBridge, asked: list[Request], payload: Any, errnum: int, text: str
    ) -> None:
        (answer,) = answered(bridge, asked[1], payload, errnum)
        assert (answer.topic, answer.matchtag) == (topics.STORE_OWN.lookup_all, 5)
        assert answer.errnum == (errnum or Errno.EPROTO)
        assert str(answer.payload).startswith(text.format(key=KEYS[1]))
        assert answered(bridge, asked[0], None, Errno.EIO) == []


def test_job_manager_is_sought_until_it_is_back(bridge: SchedBridge) -> None:
    """readings: Job manager gone."""
    assert bridge.seek_manager().to_broker == []
    (hello,) = to_broker(bridge, topics.SCHED_HELLO, {"partial-ok": True})
    (answer,) = answered(bridge, hello, None, Errno.ENOSYS)
    assert (answer.topic, answer.errnum) == (topics.SCHED_HELLO, Errno.ENOSYS)
    for _ in range(2):
        (ping,) = bridge.seek_manager().to_broker
        assert isinstance(ping, Request)
        assert ping.topic == PING_MANAGER
        assert answered(bridge, ping, None, Errno.ENOSYS) == []
    first, second = (bridge.seek_manager().to_broker[0] for _ in range(2))
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    (back,) = answered(bridge, first, {})
    assert back == Event("service-back", {"service": "job-manager"}, rolemask=1)
    assert answered(bridge, second, {}) == []  # one event is enough
    assert bridge.seek_manager().to_broker == []


def test_answer_to_nothing_is_dropped(bridge: SchedBridge) -> None:
    stray: list[Message] = [Response("x.y", {}, 0, 4), Response("x.y", None, 5, TAGS_AFTER + 9)]
    assert [bridge.from_broker(each).to_core for each in stray] == [[], []]
