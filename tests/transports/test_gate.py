"""Who may come in at a door, without a door."""

from __future__ import annotations

import pytest
import trio

from flux_trio.messages import ROLE_OWNER, ROLE_USER, Errno
from flux_trio.transports import Credentials
from flux_trio.transports import gate as gates
from flux_trio.transports.gate import Gate, Refusal

OWNER = Credentials(100, ROLE_OWNER, "owner")
GUEST = Credentials(7, ROLE_USER, "guest")


def test_connections_are_counted_by_user_and_the_rest_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gates, "CONNECTIONS_OF_GUEST_MAX", 1)
    monkeypatch.setattr(gates, "CONNECTIONS_OF_OWNER_MAX", 1)
    gate = Gate()
    with gate.counted(GUEST) as first, gate.counted(OWNER) as owner:
        assert (first, owner) == (GUEST, OWNER)
        with gate.counted(GUEST) as second:
            assert second == Refusal(Errno.EAGAIN, "1 connections of user 7 are open")
        with gate.counted(OWNER) as another:
            assert another == Refusal(Errno.EAGAIN, "1 connections of the instance owner are open")
    with gate.counted(GUEST) as again:
        assert again == GUEST


def test_connections_of_a_guest_have_one_share_and_the_owner_has_none() -> None:
    gate = Gate()
    with gate.counted(GUEST), gate.counted(GUEST):
        share = gate.share(GUEST)
        assert share is not None
        assert share.connections == 2
        assert gate.share(GUEST) is share
    assert gate.share(OWNER) is None


async def test_newcomer_who_has_waited_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "CONNECTIONS_MAX", 1)
    gate, scopes = Gate(), [trio.CancelScope() for _ in range(2)]
    with (
        gate.place() as first,
        gate.handshake(scopes[0]) as older,
        gate.handshake(scopes[1]) as newer,
        gate.place() as second,
    ):
        assert (first, second) == (True, True)
        assert (older.dropped, newer.dropped) == (True, False)
        assert [scope.cancel_called for scope in scopes] == [True, False]
    with gate.place() as first, gate.place() as second:
        assert (first, second) == (True, False), "nobody is left who could make room"
