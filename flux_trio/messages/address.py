"""Where messages are taken in: an instance's URI is `ws://HOST:PORT`, nothing else yet."""

from __future__ import annotations

from urllib.parse import urlsplit


def host_and_port(uri: str) -> tuple[str, int]:
    """The parts of `uri`. Raises ValueError that says what was expected."""
    try:
        parts = urlsplit(uri)
        if parts.scheme == "ws" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass  # urlsplit's own words are about its insides
    raise ValueError(f"{uri!r} is no address of an instance: expected ws://HOST:PORT")


def uri_of(host: str, port: int) -> str:
    """The URI of `port` at `host`, an IPv4 or IPv6 address."""
    return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"
