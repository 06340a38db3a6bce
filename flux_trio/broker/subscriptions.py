"""The subscriptions of one peer (RFC 3, Event Message Type): globs of topics."""

from __future__ import annotations

from collections.abc import Callable

from flux_trio.formats.glob import Glob


class Subscriptions:
    """Globs; a glob that was subscribed to twice is in the list twice.

    `changed` is called after each change; the router sets it.
    """

    def __init__(self) -> None:
        self.globs: list[Glob] = []
        self.changed: Callable[[], None] = lambda: None

    def add(self, pattern: str) -> None:
        """Subscribe to `pattern`; FluxError if it is too long."""
        self.globs.append(Glob(pattern))
        self.changed()

    def remove(self, pattern: str) -> None:
        """Remove one subscription to `pattern`; ValueError if there is none."""
        place = [glob.pattern for glob in self.globs].index(pattern)
        del self.globs[place]
        self.changed()

    def match(self, topic: str) -> bool:
        """Return whether the peer gets events of this topic."""
        return any(glob.matches(topic) for glob in self.globs)
