"""The payload of a response, which names a key that the instance has left out.

An instance of an older version does not know the keys that were added since. A program that needs
such a key gets an error that says so, and no bare KeyError.
"""

from __future__ import annotations

from typing import Any, NoReturn

from flux_trio._version import __version__
from flux_trio.client.errors import MissingKey


class Reply(dict[str, Any]):
    """The keys of a payload; `topic` and `uri` tell what was asked, and which instance."""

    __slots__ = ("topic", "uri")

    def __init__(self, payload: object, topic: str, uri: str) -> None:
        super().__init__(payload if isinstance(payload, dict) else {})
        self.topic = topic
        self.uri = uri

    def __missing__(self, key: str) -> NoReturn:
        """Raise MissingKey, for `reply[key]`."""
        got = ", ".join(sorted(map(str, self))) or "no keys"
        raise MissingKey(
            f"{self.topic}: expected the key {key}, got {got}; if the instance at {self.uri} is "
            f"older than this program, which has version {__version__}, restart it"
        )
