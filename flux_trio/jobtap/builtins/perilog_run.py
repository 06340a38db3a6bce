"""One prolog or epilog of one job: its ranks, its progress, and the text about its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import trio

from flux_trio import jobtap
from flux_trio.formats import Idset
from flux_trio.jobtap.builtins.perilog_config import Procedure
from flux_trio.process.local import Ending

SIGNALED: Final = 128  # a shell's exit code is this more than the signal


@dataclass(slots=True)
class Run:
    """A prolog or epilog of one job; a prolog's is kept until the epilog begins."""

    job: jobtap.Job
    what: Procedure
    targets: Idset  # the ranks it runs on
    is_taken_up: bool  # it was open before the job manager restarted
    is_known: trio.Event = field(default_factory=trio.Event)  # its start was logged
    canceled: trio.Event = field(default_factory=trio.Event)
    endings: dict[int, Ending] = field(default_factory=dict)  # by rank, of those that have ended
    is_over: bool = False
    finish_posted: bool = False  # its finish event was posted
    had_exception: bool = False  # the job had a fatal exception before this began

    @property
    def worst(self) -> Ending:
        """The ending that counts: a failure rather than a cancellation."""
        return max(
            self.endings.values(), key=lambda each: (each.failed, not each.canceled, each.status)
        )

    @property
    def how(self) -> str:
        """How it ended, in flux-core's words, for an exception."""
        worst = self.worst
        if worst.canceled:
            return "canceled then timed out"
        if worst.timed_out:
            return "timed out"
        code = worst.status >> 8
        signum = worst.status & 0x7F or max(0, code - SIGNALED)
        return f"killed by signal {signum}" if signum else f"exited with code={code}"

    @property
    def failed(self) -> Idset:
        """The ranks where the command failed."""
        return Idset.of(rank for rank, ending in self.endings.items() if ending.failed)

    def to_drain(self) -> dict[str, Idset]:
        """Return the ranks to drain, by kind of failure, without those where the command was
        canceled.

        A command that runs once for the whole job says nothing about its rank, unless it had to be
        killed.
        """
        found: dict[str, Idset] = {}
        for rank, ending in self.endings.items():
            if not ending.canceled and (ending.killed or (self.what.per_rank and ending.failed)):
                why = "timed out" if ending.timed_out else "failed"
                found[why] = found.get(why, Idset()) | Idset.of([rank])
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the run as a query shows it."""
        active = self.targets - Idset.of(self.endings)
        return {
            "name": self.what.name,
            "state": "canceled" if self.canceled.is_set() else "running",
            "total": len(self.targets),
            "active": len(active),
            "active_ranks": str(active),
        }
