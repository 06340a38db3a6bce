"""The subscriptions of one peer (RFC 3, Event Message Type): globs of topics."""

from __future__ import annotations

from typing import Final

from flux_trio.formats.glob import Glob

KNOWN_MAX: Final = 256  # topics whose result is cached; the cache is emptied when it is full


class Subscriptions:
    """Globs; a glob that was subscribed to twice is in the list twice."""

    def __init__(self) -> None:
        self.globs: list[Glob] = []  # empty for most peers; every event checks it
        self._known: dict[str, bool] = {}  # topic -> whether it matches

    def add(self, pattern: str) -> None:
        """Subscribe to `pattern`; FluxError if it is too long."""
        self.globs.append(Glob(pattern))
        self._known.clear()

    def remove(self, pattern: str) -> None:
        """Remove one subscription to `pattern`; ValueError if there is none."""
        place = [glob.pattern for glob in self.globs].index(pattern)
        del self.globs[place]
        self._known.clear()

    def match(self, topic: str) -> bool:
        """Return whether the peer gets events of this topic."""
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[topic] = any(glob.matches(topic) for glob in self.globs)
        return known
