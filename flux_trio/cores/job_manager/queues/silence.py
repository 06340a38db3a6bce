"""How long a service has owed an answer. Users see it; no job depends on it.

Jobs that wait for resources make the scheduler owe nothing, so its silence alone says nothing. When
a request has waited for `SILENCE_S_MIN`, the scheduler is asked `sched.stats-get` (readings: A
scheduler that is silent). Any answer ends the silence until the next request, so that an instance
whose jobs wait for days asks once.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_manager.calls import SignOfLife
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import Time
from flux_trio.messages import topics

SILENCE_S_MIN: Final = 1.0
"""Seconds that an answer may take before `queue status` shows it, or a sign of life is wanted."""


class Silence(Part):
    """The time from the first request after a service's last message to its next message.

    A service that `may_wait` owes its answer at no time, but a sign of life when it is asked for
    one: without that question its silence says nothing.
    """

    since: Time | None
    doubted: Time | None  # when the service was asked for a sign of life in this silence

    def __init__(self, who: str, *, may_wait: bool = False) -> None:
        self._who = who
        self._may_wait = may_wait
        self.since = None
        self.doubted = None

    def asked(self, now: float) -> None:
        """Start measuring at a message to be answered, unless an answer is due already."""
        if self.since is None:
            self.since = now

    def broken(self) -> None:
        """Stop measuring: the service has sent a message, or is gone."""
        self.since = self.doubted = None

    def excused(self, now: float) -> None:
        """Measure from now: the service has given a reason, or withdrawn it."""
        if self.since is not None:
            self.since = now

    def clock_stepped(self, by: float) -> None:
        """Keep the length of the silence when the wall clock was set by `by` seconds."""
        if self.since is not None:
            self.since += by
        if self.doubted is not None:
            self.doubted += by

    def is_long(self, now: float) -> bool:
        """Return whether an answer takes longer than it may."""
        return self.since is not None and now - self.since >= SILENCE_S_MIN

    def text(self, now: float) -> str:
        """Return a text for users; "" if no answer is due."""
        if self.since is None or not self.is_long(now):
            return ""
        if self._may_wait and (self.doubted is None or now - self.doubted < SILENCE_S_MIN):
            return ""
        return f"{self._who} has not answered for {int(now - self.since)} s"


class SignsOfLife(Part):
    """Asks the scheduler, whose `silence` this is, for a sign of life."""

    def __init__(self, ledger: Ledger, silence: Silence) -> None:
        self._ledger = ledger
        self._silence = silence

    def end_turn(self) -> None:
        """Set the timer while an answer is due, until the scheduler was asked."""
        outbox, since = self._ledger.outbox, self._silence.since
        if since is None:
            outbox.clear_timer("sign-of-life")
        elif self._silence.doubted is None and "sign-of-life" not in outbox.timers:
            outbox.set_timer("sign-of-life", since + SILENCE_S_MIN)

    def ask(self) -> None:
        """Ask, when the timer fires; it is cleared when the scheduler says anything."""
        self._silence.doubted = self._ledger.now
        self._ledger.ask(topics.stats_of(topics.SCHED), {}, SignOfLife())
