"""A payload of the other edition is refused by a text that names both."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Fetch
from flux_trio.editions import CLASSIC, CURRENT, Edition
from flux_trio.formats import ResourceSet
from flux_trio.messages import Errno, FluxError, Request, Response
from flux_trio.store.executing import execute
from flux_trio.store.stores import MemoryStore
from tests.support.asking import OWNER_USERID, asked

R: Final[dict[str, Any]] = ResourceSet.build([(0, 1, 0)], lambda rank: f"n{rank}").to_json()
START: Final = {"id": 1, "userid": 1000, "jobspec": {}, "reattach": False}
HELD: Final = {"id": 1, "priority": 16, "userid": 1000, "t_submit": 5.0}
GROWN: Final = {"type": "grow", "resources": R, "online": "0", "offline": ""}
UNLINKED: Final = {"key": "a", "flags": 0, "dirent": None}
ALONE: Final[dict[str, Callable[[Edition], Any]]] = {
    "hello": lambda edition: edition.sched_hello,
    "held": lambda edition: edition.held_job,
    "free": lambda edition: edition.free,
    "alloc": lambda edition: edition.alloc_answer,
    "acquire": lambda edition: edition.acquire,
    "changes": lambda edition: edition.changes,
    "start": lambda edition: edition.start,
    "answer": lambda edition: edition.start_answer,
}


@pytest.mark.parametrize(
    ("reader", "what", "payload"),
    [
        (CLASSIC, "hello", {"partial-ok": True}),
        (CLASSIC, "held", {**HELD, "free": "0"}),
        (CLASSIC, "free", {"id": 1, "R": R}),
        (CLASSIC, "free", {"id": 1, "R": R, "final": True}),
        (CLASSIC, "acquire", None),
        (CLASSIC, "changes", {"resources": R, "up": "0"}),
        (CLASSIC, "changes", {"down": "0"}),
        (CLASSIC, "answer", {"id": 1, "type": "reattached", "data": {}}),
        (CURRENT, "free", {"id": 1}),
        (CURRENT, "alloc", {"id": 1, "type": 0}),
        (CURRENT, "acquire", {"group": "default"}),
        (CURRENT, "changes", GROWN),
        (CURRENT, "changes", {"type": "offline", "targets": "0"}),
        (CURRENT, "start", START),
    ],
)
def test_payload_of_the_other_edition_is_refused_by_a_text_that_names_both(
    reader: Edition, what: str, payload: Any
) -> None:
    writer = CURRENT if reader is CLASSIC else CLASSIC
    ALONE[what](writer).read(Request("x.y", payload))
    text = f"x.y: payload: expected one of edition {reader.name}, which is spoken here, "
    with pytest.raises(FluxError, match=re.escape(text)) as refused:
        ALONE[what](reader).read(Request("x.y", payload))
    assert f"got one of edition {writer.name}" in refused.value.text
    assert refused.value.errnum == Errno.EPROTO


@pytest.mark.parametrize(("what", "payload"), [("start", START), ("alloc", {"id": 1, "type": 0})])
def test_key_that_says_what_the_reader_knows_is_passed_over(
    what: str, payload: dict[str, Any]
) -> None:
    """R of a start and of a SUCCESS is in the kvs as well, where classic has it alone."""
    codec = ALONE[what](CLASSIC)
    assert codec.read(Request("x.y", {**payload, "R": R})) == codec.read(Request("x.y", payload))


@pytest.mark.parametrize(
    ("reader", "topic", "payload"),
    [
        (CLASSIC, "kvs.lookup", {"key": "a", "namespace": "primary", "flags": 1}),
        (CLASSIC, "kvs.lookup", {"key": "a", "namespace": "job-1", "flags": 0}),
        (CLASSIC, "kvs.lookup", {"key": "a", "rootdir": {}, "flags": 0}),
        (CLASSIC, "kvs.commit", {"namespace": "primary", "flags": 0, "ops": [UNLINKED]}),
        (CURRENT, "kvs.lookup", {"key": "a"}),
        (CURRENT, "kvs.commit", {"ops": [["put", "a", "b"]]}),
        (CURRENT, "kvs-watch.lookup", {"key": "a"}),
    ],
)
def test_request_of_the_other_edition_to_the_kvs_is_refused_as_well(
    reader: Edition, topic: str, payload: dict[str, Any]
) -> None:
    core, store = KvsCore(OWNER_USERID, reader), MemoryStore()
    begun = [execute(store, each) for each in core.start(0.0) if isinstance(each, Fetch)]
    (answer,) = core.turn(0.0, [*begun, asked(topic, payload, streaming="watch" in topic)])
    writer = CURRENT if reader is CLASSIC else CLASSIC
    assert isinstance(answer, Response)
    assert answer.errnum == Errno.EPROTO
    assert answer.payload == (
        f"{topic}: payload: expected one of edition {reader.name}, which is spoken here, "
        f"got one of edition {writer.name}"
    )
