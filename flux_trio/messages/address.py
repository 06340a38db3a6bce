"""Where messages are taken in: an instance's URI is `ws://HOST:PORT`, or `unix://PATH` too."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_UNIX: Final = "unix://"


def socket_path(uri: str) -> str | None:
    """The path of a Unix socket's URI, None for another URI."""
    return uri.removeprefix(_UNIX) if uri.startswith(_UNIX) else None


def host_and_port(uri: str) -> tuple[str, int]:
    """The parts of `uri`. Raises ValueError that says what was expected."""
    try:
        parts = urlsplit(uri)
        if parts.scheme == "ws" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass  # urlsplit's own words are about its insides
    raise ValueError(
        f"{uri!r} is no address of an instance: expected ws://HOST:PORT or unix://PATH"
    )


def uri_of(host: str, port: int) -> str:
    """The URI of `port` at `host`, an IPv4 or IPv6 address."""
    return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"


def uri_of_socket(path: str) -> str:
    return f"{_UNIX}{path}"
