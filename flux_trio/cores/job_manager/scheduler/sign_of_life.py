"""Whether a silent scheduler is alive (readings: A scheduler that is silent).

Jobs that wait for resources make the scheduler owe nothing, so its silence alone says nothing. When
a request has waited for `SILENCE_S_MIN`, the scheduler is asked `sched.stats-get`. Any answer ends
the silence until the next request, so that an instance whose jobs wait for days asks once.
"""

from __future__ import annotations

from flux_trio.cores.job_manager.calls import SignOfLife
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.silence import SILENCE_S_MIN, Silence
from flux_trio.cores.state import Part
from flux_trio.messages import topics


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
