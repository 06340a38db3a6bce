"""Messages between Flux components (RFC 3), and how requests and responses pair up (RFC 6).

There are four message types: `Request`, `Response`, `Event`, `Control`. A request opens an RPC;
responses repeat its topic, matchtag and routes. A stream of responses ends with an error, which is
ENODATA on success. `Calls` keeps the open requests of one party; `respond` and `respond_error`
build the answers. `topics` defines every wire name once. This package does no I/O.
"""

from flux_trio.messages.errors import (
    Errno,
    FluxError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    errno_text,
)
from flux_trio.messages.rpc import (
    Calls,
    check_job_access,
    check_new_stream,
    check_owner,
    check_user,
    disconnect_request,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    tells_return_of,
    unanswered,
    unknown_method,
    unknown_stream,
)
from flux_trio.messages.types import (
    MATCHTAG_NONE,
    NODEID_ANY,
    ROLE_LOCAL,
    ROLE_OWNER,
    ROLE_USER,
    USERID_UNKNOWN,
    Control,
    Event,
    Flag,
    Level,
    Message,
    Payload,
    Request,
    Response,
    service_of,
)
from flux_trio.messages.values import (
    UnfitError,
    check_object,
    check_texts,
    expect_payload,
    payload_bytes,
)

__all__ = [
    "MATCHTAG_NONE",
    "NODEID_ANY",
    "ROLE_LOCAL",
    "ROLE_OWNER",
    "ROLE_USER",
    "USERID_UNKNOWN",
    "Calls",
    "Control",
    "Errno",
    "Event",
    "Flag",
    "FluxError",
    "Level",
    "LocalProtocolError",
    "Message",
    "Payload",
    "ProtocolError",
    "RemoteProtocolError",
    "Request",
    "Response",
    "UnfitError",
    "check_job_access",
    "check_new_stream",
    "check_object",
    "check_owner",
    "check_texts",
    "check_user",
    "disconnect_request",
    "end_of_stream",
    "errno_text",
    "expect_payload",
    "payload_bytes",
    "respond",
    "respond_error",
    "respond_stream",
    "service_of",
    "tells_return_of",
    "unanswered",
    "unknown_method",
    "unknown_stream",
]
