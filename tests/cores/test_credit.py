"""Credit of a stream: what may be sent, what a grant adds, what a grant may say."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.credit import CREDIT_MAX, Credit, read_grant
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


def test_grant_names_a_stream_of_its_sender() -> None:
    request = asked("x.y-credit", {"matchtag": 9, "credit": 5})
    assert read_grant(request) == (("alice", 9), 5)


@pytest.mark.parametrize(
    "payload", [{}, {"matchtag": 9}, {"matchtag": 9, "credit": 0}, {"matchtag": 9, "credit": 2**31}]
)
def test_bad_grant_is_refused(payload: Any) -> None:
    with pytest.raises(FluxError) as caught:
        read_grant(asked("x.y-credit", payload))
    assert caught.value.errnum == Errno.EPROTO
