"""What one peer is subscribed to (RFC 3, Event Message Type): globs of topics."""

from __future__ import annotations

from typing import Final

from flux_trio.formats.glob import Glob

KNOWN_MAX: Final = 256  # topics whose answer is kept; when there are more, all are forgotten


class Subscriptions:
    """Globs, the same one as often as it was subscribed to."""

    def __init__(self) -> None:
        self.globs: list[Glob] = []  # empty for most peers, which every event looks at
        self._known: dict[str, bool] = {}  # whether a topic that was published before matches

    def add(self, pattern: str) -> None:
        """Subscribe to `pattern`. Raises FormatError for one that is too long."""
        self.globs.append(Glob(pattern))
        self._known.clear()

    def remove(self, pattern: str) -> None:
        """Take back one subscription to `pattern`. Raises ValueError when there is none."""
        place = [glob.pattern for glob in self.globs].index(pattern)
        del self.globs[place]
        self._known.clear()

    def match(self, topic: str) -> bool:
        """Whether an event of this topic is for the peer."""
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[topic] = any(glob.matches(topic) for glob in self.globs)
        return known
