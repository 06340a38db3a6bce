"""RFC 6: requests, the responses that match them, streams, disconnect.

Both sides of an RPC use these functions; they do not interpret payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final, Generic, TypeVar

from msgspec import structs

from flux_trio.formats import shortened
from flux_trio.formats.meanings import Last, Matchtag
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
"""Length limit of an error response's text; twice the limit of an error text from a plugin."""

Purpose = TypeVar("Purpose")
RequestT = TypeVar("RequestT", bound=Request)


def respond(request: Request, payload: Payload = None) -> Response | None:
    """Return the success response that ends `request`, or None if it wants no response."""
    if request.flags & NORESPONSE:
        return None
    return Response(
        topic=request.topic, payload=payload, matchtag=request.matchtag, routes=request.routes
    )


def respond_stream(request: Request, payload: Payload) -> Response | None:
    """Return one of several responses to `request`; the stream stays open."""
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
    """Return the error response that ends `request`; `errnum` is positive, `text` for a person.

    The text is cut to ERROR_CHARS_MAX: it may quote the request, which can be as long as a frame.
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


def unanswered(request: RequestT, sender: str) -> RequestT:
    """Return `request`; one of `sender` wants no response: it is gone (RFC 6, Disconnection)."""
    if request.sender != sender:
        return request
    return structs.replace(request, flags=request.flags | NORESPONSE)


def end_of_stream(request: Request) -> Response | None:
    """Return the ENODATA response: a stream's successful end (RFC 6, Streaming Responses)."""
    return respond_error(request, Errno.ENODATA)


def disconnect_request(service: str, sender: str, userid: int, rolemask: int) -> Request:
    """Return the request by which the broker tells `service` that `sender` is gone (RFC 6)."""
    return Request(
        topic=topics.disconnect_of(service),
        flags=NORESPONSE,
        userid=userid,
        rolemask=rolemask,
        routes=(sender,),
    )


def tells_return_of(service: str, event: Event) -> bool:
    """Return whether `event` says that `service` is served again; events of guests do not count."""
    if event.topic != topics.SERVICE_BACK_EVENT or not event.rolemask & ROLE_OWNER:
        return False
    return isinstance(event.payload, dict) and event.payload.get("service") == service


def check_owner(request: Request) -> None:
    """Raise FluxError(EPERM), with flux-core's text, unless the sender is the instance owner."""
    if not request.rolemask & ROLE_OWNER:
        raise FluxError(Errno.EPERM, "Request requires owner credentials")


def check_user(request: Request, userid: int, refusal: str) -> None:
    """Raise FluxError(EPERM) with `refusal` unless the sender is `userid` or the instance owner."""
    if not request.is_owner and request.userid != userid:
        raise FluxError(Errno.EPERM, refusal)


def check_job_access(request: Request, userid: int) -> None:
    """Raise FluxError(EPERM), with flux-core's text, unless the sender may ask about a user's job.

    Only `userid`, whose job it is, and the instance owner may. A request that changes a job says in
    its refusal what is denied (`check_user`).
    """
    check_user(request, userid, "access is restricted to job/instance owner")


def check_new_stream(request: Request, streams: Container[tuple[str, int]]) -> None:
    """Raise FluxError(EPROTO) unless `request` may open a stream.

    `streams` are those that are open now: the sender and the matchtag of each.
    """
    if not request.is_streaming or (request.sender, request.matchtag) in streams:
        text = f"{request.topic}: expected the streaming flag and a matchtag not in use"
        raise FluxError(Errno.EPROTO, text)


def unknown_stream(request: Request, matchtag: int) -> FluxError:
    """Return the error for a request about a stream that its sender has not opened."""
    return FluxError(Errno.ENOENT, f"{request.topic}: no stream with matchtag {matchtag}")


def unknown_method(service: str, name: str) -> FluxError:
    """Return the error for a method that `service` does not have."""
    return FluxError(Errno.ENOSYS, f"no method {name} in service {service}")


class Calls(Generic[Purpose]):
    """The open RPCs of one party: matchtag -> purpose of the call.

    RFC 6 (Matchtag Field) allows a matchtag again only after its RPC has ended. This class takes
    the next number that is free, so no number repeats within 2**32 calls.
    """

    _open: dict[Matchtag, Purpose]
    _last: Last

    def __init__(self, after: int = 0) -> None:
        """Begin with the matchtag after `after`."""
        self._open = {}
        self._last = after

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Purpose]:
        """Yield the purposes of the open calls, the oldest first."""
        return iter(self._open.values())

    def items(self) -> Iterator[tuple[int, Purpose]]:
        """Yield matchtag and purpose of the open calls, the oldest first."""
        return iter(self._open.items())

    def open(self, purpose: Purpose) -> int:
        """Return a fresh matchtag and keep `purpose` for it until its last response."""
        self._last = self._last % 0xFFFFFFFF + 1
        while self._last in self._open:
            self._last = self._last % 0xFFFFFFFF + 1
        self._open[self._last] = purpose
        return self._last

    def match(self, response: Response) -> Purpose | None:
        """Return the purpose of the call that `response` answers; None for an unknown matchtag."""
        if response.ends_rpc:
            return self._open.pop(response.matchtag, None)
        return self._open.get(response.matchtag)

    def close(self, matchtag: int) -> Purpose | None:
        """Forget an RPC; its later responses then match no call."""
        return self._open.pop(matchtag, None)

    @property
    def last(self) -> int:
        """Return the matchtag of the last call."""
        return self._last

    def change(self, change: Callable[[Purpose, int], Purpose]) -> None:
        """Replace the purpose of each open call by what `change` returns for it.

        Its second argument is how many calls were opened after this one.
        """
        for matchtag, purpose in self._open.items():
            self._open[matchtag] = change(purpose, self.opened_since(matchtag))

    def opened_since(self, matchtag: int) -> int:
        """Return how many calls were opened after the one that has, or had, this matchtag."""
        return (self._last - matchtag) % 0xFFFFFFFF
