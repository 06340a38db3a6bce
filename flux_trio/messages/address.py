"""Addresses of an instance: the URI `ws://HOST:PORT`, or `unix://PATH`."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_UNIX: Final = "unix://"


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
