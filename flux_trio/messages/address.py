"""Addresses: `ws://HOST:PORT` or `unix://PATH` of an instance, `local://PATH` of a flux-core."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_UNIX: Final = "unix://"
_LOCAL: Final = "local://"
_DESCRIPTOR: Final = "fd://"

FLUX_URI_DEFAULT: Final = "local:///run/flux/local"
"""Where the broker of a whole system listens, if FLUX_URI says nothing else."""
SOCKET_PATH_BYTES_MAX: Final = 107  # unix(7)


def socket_path(uri: str) -> str | None:
    """Return the path of a `unix://` URI, None for another URI."""
    return uri.removeprefix(_UNIX) if uri.startswith(_UNIX) else None


def host_and_port(uri: str) -> tuple[str, int]:
    """Return the parts of a `ws://` URI; ValueError says what was expected."""
    try:
        parts = urlsplit(uri)
        if parts.scheme == "ws" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass  # urlsplit's error text does not help the user
    raise ValueError(
        f"{uri!r} is not an address of an instance: expected ws://HOST:PORT or unix://PATH"
    )


def uri_of(host: str, port: int) -> str:
    """Return the URI of `port` at `host`, an IPv4 or IPv6 address."""
    return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"


def uri_of_socket(path: str) -> str:
    return f"{_UNIX}{path}"


def flux_address(uri: str) -> str | int:
    """Return the path of a `local://` URI of flux-core, or the descriptor of an `fd://` URI.

    ValueError says what was expected.
    """
    path = uri.removeprefix(_LOCAL)
    if path != uri and path:
        if len(path.encode(errors="surrogateescape")) > SOCKET_PATH_BYTES_MAX:
            raise ValueError(f"expected a path of at most {SOCKET_PATH_BYTES_MAX} bytes")
        return path
    number = uri.removeprefix(_DESCRIPTOR)
    if number != uri and number.isascii() and number.isdigit():
        return int(number)
    raise ValueError(
        "expected local://PATH, or fd://N for an open socket, of a broker of flux-core"
    )
