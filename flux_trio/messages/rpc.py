"""RFC 6: requests, the responses that match them, streams, disconnect.

Both sides of an RPC use these; neither function looks at what a payload means.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from flux_trio.formats import shortened
from flux_trio.messages import topics
from flux_trio.messages.errors import Errno, FluxError
from flux_trio.messages.types import (
    NORESPONSE,
    ROLE_OWNER,
    STREAMING,
    Event,
    Payload,
    Request,
    Response,
)

ERROR_CHARS_MAX: Final = 4096
"""Of an error response; what a plugin says of an error is half as long at most."""

Purpose = TypeVar("Purpose")


def respond(request: Request, payload: Payload = None) -> Response | None:
    """The success that ends `request`, or None when it wants no response."""
    if request.flags & NORESPONSE:
        return None
    return Response(
        topic=request.topic,
        payload=payload,
        matchtag=request.matchtag,
        routes=request.routes,
    )


def respond_stream(request: Request, payload: Payload) -> Response | None:
    """One of several responses to `request`; the stream stays open."""
    if request.flags & NORESPONSE:
        return None
    return Response(
        topic=request.topic,
        payload=payload,
        matchtag=request.matchtag,
        flags=STREAMING,
        routes=request.routes,
    )


def respond_error(request: Request, errnum: int, text: str = "") -> Response | None:
    """The failure that ends `request`: `errnum` is positive, `text` for a person.

    The text may quote what the request said, which may be as long as a frame: it is cut.
    """
    if request.flags & NORESPONSE:
        return None
    return Response(
        topic=request.topic,
        payload=shortened(text, ERROR_CHARS_MAX) or None,
        errnum=int(errnum),
        matchtag=request.matchtag,
        routes=request.routes,
    )


def end_of_stream(request: Request) -> Response | None:
    """ENODATA: everything has been sent (RFC 6, Streaming Responses)."""
    return respond_error(request, Errno.ENODATA)


def disconnect_request(service: str, sender: str, userid: int, rolemask: int) -> Request:
    """What the broker tells `service` when `sender` is gone (RFC 6, Disconnection)."""
    return Request(
        topic=topics.disconnect_of(service),
        flags=NORESPONSE,
        userid=userid,
        rolemask=rolemask,
        routes=(sender,),
    )


def tells_return_of(service: str, event: Event) -> bool:
    """Whether by `event` somebody serves `service` again; a guest may publish one, to no effect."""
    if event.topic != topics.SERVICE_BACK_EVENT or not event.rolemask & ROLE_OWNER:
        return False
    return isinstance(event.payload, dict) and event.payload.get("service") == service


def check_owner(request: Request) -> None:
    """Raise FluxError(EPERM) unless the instance owner asks; flux-core's words."""
    if not request.is_owner:
        raise FluxError(Errno.EPERM, "Request requires owner credentials")


def unknown_method(service: str, name: str) -> FluxError:
    """The refusal of a method that `service` has not."""
    return FluxError(Errno.ENOSYS, f"no method {name} in service {service}")


class Calls(Generic[Purpose]):
    """The RPCs one party has open: each matchtag and what it was asked for.

    A matchtag is used again only after its RPC has ended (RFC 6, Matchtag Field); this
    takes the next number instead, which is the same in effect for 2**32 calls.
    """

    def __init__(self) -> None:
        self._open: dict[int, Purpose] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def open(self, purpose: Purpose) -> int:
        """A fresh matchtag, remembered as `purpose` until its last response."""
        self._last = self._last % 0xFFFFFFFF + 1
        while self._last in self._open:
            self._last = self._last % 0xFFFFFFFF + 1
        self._open[self._last] = purpose
        return self._last

    def match(self, response: Response) -> Purpose | None:
        """What `response` answers, or None when nothing open has its matchtag."""
        if response.ends_rpc:
            return self._open.pop(response.matchtag, None)
        return self._open.get(response.matchtag)

    def close(self, matchtag: int) -> Purpose | None:
        """Forget an RPC whose answers no longer matter; late ones then match nothing."""
        return self._open.pop(matchtag, None)
