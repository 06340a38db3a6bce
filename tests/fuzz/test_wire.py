"""What comes over the wire is taken or refused by name: 20,000 cases, and those hypothesis finds.

`make fuzz-wire` tries a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.messages import RemoteProtocolError, Request
from flux_trio.messages.codec import decode_frame, encode
from tests.fuzz.__main__ import ROUND, shares
from tests.fuzz.at_socket import fuzz_socket
from tests.fuzz.run import (
    check_codec_does_not_grow,
    check_instance_does_not_grow,
    fuzz_codec,
    fuzz_door,
    fuzz_native,
    fuzz_native_door,
    fuzz_services,
)
from tests.support import reborn

CODEC, SERVICES, DOOR = shares(ROUND)
SEED = 20_000

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_a_frame_is_taken_and_can_be_sent_on_or_is_refused() -> None:
    seen = fuzz_codec(Random(SEED), CODEC)
    assert seen.total() == CODEC
    assert seen["taken"] > CODEC // 10
    assert {"frame", "flags", "message", "payload", "routes", "topic", "type"} <= set(seen)


def test_a_native_frame_is_taken_and_can_be_sent_on_or_is_refused() -> None:
    seen = fuzz_native(Random(SEED), CODEC)
    assert seen.total() == CODEC
    assert seen["taken"] > CODEC // 10
    assert {"frame", "header", "type", "topic", "routes", "incomplete"} <= set(seen)


@pytest.mark.parametrize("fuzz", [fuzz_codec, fuzz_native])
def test_frames_leave_nothing_behind(fuzz: Callable[[Random, int], Counter[str]]) -> None:
    check_codec_does_not_grow(fuzz, Random(SEED), 2000)


async def test_payloads_are_answered_and_no_service_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seen = await fuzz_services(Random(SEED), SERVICES)
    assert seen["0"] > SERVICES // 20
    assert {"1", "2", "22", "71"} <= set(seen)  # EPERM ENOENT EINVAL EPROTO


@pytest.mark.skipif(reborn.is_on, reason="bytes in a request that is held are no JSON")
async def test_connections_of_the_native_door_leave_nothing_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await check_instance_does_not_grow(Random(SEED), 40)


async def test_bytes_at_the_door_end_their_own_connection(tmp_path: Path) -> None:
    await fuzz_door(Random(SEED), DOOR, tmp_path)


async def test_frames_at_the_native_door_end_their_own_connection(tmp_path: Path) -> None:
    await fuzz_native_door(Random(SEED), DOOR, tmp_path)


@pytest.mark.gate
def test_what_comes_in_at_a_socket_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    fuzz_socket(Random(SEED), 1000)
    assert "no finding" in capsys.readouterr().out


@settings(max_examples=60)
@given(st.dictionaries(st.text(), values, max_size=5))
def test_what_may_travel_arrives_as_it_was(payload: dict[str, Any]) -> None:
    request = Request("a.b", payload, 1)
    assert decode_frame(encode(request)) == [request]


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_place(data: bytes) -> None:
    assert ": expected" in refusal(data) or "in the item at byte" in refusal(data)


def refusal(data: bytes) -> str:
    """Why `data` is refused; that it is not would be much of a chance."""
    with pytest.raises(RemoteProtocolError) as refused:
        decode_frame(data)
    return str(refused.value)


@pytest.mark.parametrize("count", [1, 999, 20_000])
def test_shares_are_all_there_is(count: int) -> None:
    assert sum(shares(count)) == count
