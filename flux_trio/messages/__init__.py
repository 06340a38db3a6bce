"""Messages: what Flux components say to each other (RFC 3), and how they pair up (RFC 6).

Four nouns: `Request`, `Response`, `Event`, `Control`. A request opens an RPC; responses
carry its topic, matchtag and routes back; a stream of responses ends with an error, ENODATA
when all went well. `Calls` remembers what a party has asked, `respond` and `respond_error` make
the answers. Wire names live in `topics`, once. Nothing here sends anything.
"""

from flux_trio.messages.errors import (
    Errno,
    FluxError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from flux_trio.messages.levels import Level
from flux_trio.messages.payloads import expect_payload, payload_bytes
from flux_trio.messages.rpc import (
    Calls,
    check_owner,
    disconnect_request,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    tells_return_of,
    unknown_method,
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
    Message,
    Payload,
    Request,
    Response,
    service_of,
)
from flux_trio.messages.values import UnfitError, check_object

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
    "check_object",
    "check_owner",
    "disconnect_request",
    "end_of_stream",
    "expect_payload",
    "payload_bytes",
    "respond",
    "respond_error",
    "respond_stream",
    "service_of",
    "tells_return_of",
    "unknown_method",
]
