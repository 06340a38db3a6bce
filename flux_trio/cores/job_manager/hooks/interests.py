"""The hooks that plugins handle and the jobs that they subscribe to: see `PluginInterests`."""

from __future__ import annotations

from typing import Final

from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import PluginInterests, handles

TOPICS_MAX: Final = 4096
"""Topics whose results are kept; users choose the topics of updates and events."""


class Interests(Part):
    """Which hooks plugins handle, and which jobs' events they subscribe to."""

    patterns: tuple[str, ...]  # topics and globs
    of_many: tuple[str, ...]  # topics whose handlers all answer for many jobs in one call
    subscribed: set[JobId]

    def __init__(self) -> None:
        self.patterns = ()
        self.of_many = ()
        self.subscribed = set()
        self._known: dict[str, bool] = {}  # computed from `patterns`, by topic

    def taken_up(self) -> None:
        self._known.clear()

    def update(self, news: PluginInterests) -> None:
        """Take a change of handlers or of subscriptions."""
        if news.topics is not None:
            self.patterns, self.of_many = news.topics, news.of_many
            self._known.clear()
        self.subscribed.update(news.subscribed)
        self.subscribed.difference_update(news.unsubscribed)

    def handled(self, topic: str) -> bool:
        """Return whether any plugin handles `topic`."""
        try:
            return self._known[topic]  # nearly always
        except KeyError:
            if len(self._known) >= TOPICS_MAX:
                self._known.clear()
            known = self._known[topic] = any(handles(each, topic) for each in self.patterns)
            return known

    def forget(self, jobid: int) -> None:
        """Forget a job that is over: the host has dropped its subscriptions."""
        self.subscribed.discard(jobid)
