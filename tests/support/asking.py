"""Requests as a core gets them: stamped with who asks."""

from __future__ import annotations

from typing import Any

from flux_trio.messages import ROLE_OWNER, ROLE_USER, Event, Flag, Request, disconnect_request

OWNER_USERID = 1000
GUEST_USERID = 2000


def asked(
    topic: str, payload: Any = None, *, by: str = "alice", tag: int = 1, streaming: bool = False
) -> Request:
    """A request of the instance owner's peer `by`."""
    flags = int(Flag.STREAMING) if streaming else 0
    return Request(
        topic, payload, tag, flags, userid=OWNER_USERID, rolemask=ROLE_OWNER, routes=(by,)
    )


def asked_by_guest(
    topic: str, payload: Any = None, *, streaming: bool = False, tag: int = 1
) -> Request:
    """A request of somebody who does not own the instance."""
    flags = int(Flag.STREAMING) if streaming else 0
    return Request(
        topic, payload, tag, flags, userid=GUEST_USERID, rolemask=ROLE_USER, routes=("guest",)
    )


def gone(service: str, peer: str) -> Request:
    """What the broker tells `service` when `peer` has gone."""
    return disconnect_request(service, peer, OWNER_USERID, ROLE_OWNER)


def service_back(service: str, *, rolemask: int = ROLE_OWNER) -> Event:
    """What the broker publishes when somebody holds the name of `service` again."""
    return Event("service-back", {"service": service}, rolemask=rolemask)
