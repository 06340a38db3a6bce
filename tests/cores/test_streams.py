"""Streams: their credit, and which requests open, grant to, cancel and end them."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.streams import Credit, JobStream, JobStreams, Streams
from flux_trio.editions.common import CREDIT_MAX
from flux_trio.messages import Errno, FluxError
from tests.support.asking import asked


def test_stream_sends_what_it_has_credit_for_and_waits() -> None:
    credit = Credit(3)
    assert credit.allows(2) == 2
    credit.spend(2)
    assert credit.allows(5) == 1
    credit.spend()
    assert credit.allows(5) == 0
    credit.add(4)
    assert credit.allows(5) == 4


def test_stream_without_credit_has_no_bound() -> None:
    credit = Credit()
    credit.spend(10**6)
    credit.add(1)
    assert credit.allows(10**9) == 10**9


def test_credit_cannot_grow_without_end() -> None:
    credit = Credit(CREDIT_MAX)
    credit.add(CREDIT_MAX)
    assert credit.left == CREDIT_MAX


def opened(streams: Streams[JobStream], matchtag: int, sender: str = "alice") -> JobStream:
    request = asked("x.y", {}, by=sender, tag=matchtag, streaming=True)
    streams.check_new(request)
    stream = JobStream(request, Credit(1), jobid=7)
    streams.add(stream)
    return stream


def test_grant_is_for_a_stream_of_its_sender() -> None:
    streams = Streams[JobStream]()
    alice, bob = opened(streams, 9), opened(streams, 9, "bob")
    assert streams.granted(asked("x.y-credit", {"matchtag": 9, "credit": 5})) is alice
    assert (alice.credit.left, bob.credit.left) == (6, 1)


def test_grant_that_crosses_the_end_of_its_stream_is_no_error() -> None:
    streams = Streams[JobStream]()
    streams.remove(opened(streams, 9))
    assert streams.granted(asked("x.y-credit", {"matchtag": 9, "credit": 5})) is None


@pytest.mark.parametrize(
    "payload", [{}, {"matchtag": 9}, {"matchtag": 9, "credit": 0}, {"matchtag": 9, "credit": 2**31}]
)
def test_bad_grant_is_refused(payload: Any) -> None:
    with pytest.raises(FluxError) as caught:
        Streams[JobStream]().granted(asked("x.y-credit", payload))
    assert caught.value.errnum == Errno.EPROTO


def test_cancel_is_for_a_stream_of_its_sender() -> None:
    streams = Streams[JobStream]()
    alice = opened(streams, 9)
    opened(streams, 8, "bob")
    assert streams.canceled(asked("x.y-cancel", {"matchtag": 9})) is alice
    with pytest.raises(FluxError, match="no stream with matchtag 8") as caught:
        streams.canceled(asked("x.y-cancel", {"matchtag": 8}))
    assert caught.value.errnum == Errno.ENOENT


def test_matchtag_is_used_again_only_after_its_stream_has_ended() -> None:
    streams = Streams[JobStream]()
    first = opened(streams, 9)
    with pytest.raises(FluxError, match="a matchtag not in use"):
        opened(streams, 9)
    streams.remove(first)
    again = opened(streams, 9)
    assert (streams.is_open(first), streams.is_open(again)) == (False, True)


def test_request_without_the_streaming_flag_opens_no_stream() -> None:
    with pytest.raises(FluxError, match="expected the streaming flag") as caught:
        Streams[JobStream]().check_new(asked("x.y", {}))
    assert caught.value.errnum == Errno.EPROTO


def test_streams_are_found_by_sender_and_by_job() -> None:
    streams = JobStreams[JobStream]()
    alice, other, bob = opened(streams, 1), opened(streams, 2), opened(streams, 1, "bob")
    streams.remove(other)
    again = JobStreams[JobStream]()
    again.__setstate__(streams.__getstate__())
    assert again.of_sender("alice") == [alice]
    assert again.of_job(7) == [alice, bob]
    streams.remove(alice)
    streams.remove(bob)
    assert (len(streams), streams.of_sender("alice"), streams.of_job(7)) == (0, [], [])
