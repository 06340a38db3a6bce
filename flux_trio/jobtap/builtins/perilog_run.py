"""One prolog or epilog of one job: where it runs, how far it is, and how its end is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import trio

from flux_trio import jobtap
from flux_trio.formats import Idset
from flux_trio.jobtap.builtins.perilog_config import Procedure
from flux_trio.local_process import Ending

SIGNALED: Final = 128  # a shell's exit code is this more than the signal


@dataclass(slots=True)
class Run:
    """A prolog or epilog of one job; a prolog's is kept until the job ends."""

    job: jobtap.Job
    what: Procedure
    targets: Idset  # the ranks it runs on
    is_taken_up: bool  # from an earlier life of the job manager
    canceled: trio.Event = field(default_factory=trio.Event)
    endings: dict[int, Ending] = field(default_factory=dict)  # by rank, of those that have ended
    is_over: bool = False
    is_told: bool = False  # its finish event has been asked for

    @property
    def worst(self) -> Ending:
        """What the job learns of."""
        return max(self.endings.values(), key=lambda each: (each.failed, each.status))

    @property
    def how(self) -> str:
        """How it ended, in flux-core's words, as an exception tells it."""
        worst = self.worst
        if worst.canceled:
            return "canceled then timed out"
        if worst.timed_out:
            return "timed out"
        code = worst.status >> 8
        signum = worst.status & 0x7F or max(0, code - SIGNALED)
        return f"killed by signal {signum}" if signum else f"exited with code={code}"

    @property
    def why_drained(self) -> str:
        """The same as a drain reason tells it."""
        return self.how if self.worst.canceled or self.worst.timed_out else "failed"

    def ranks(self, which: str) -> Idset:
        """The ranks whose ending is `failed`, or was `killed`."""
        return Idset.of(rank for rank, ending in self.endings.items() if getattr(ending, which))

    def to_json(self) -> dict[str, Any]:
        """As a query shows it."""
        active = self.targets - Idset.of(self.endings)
        return {
            "name": self.what.name,
            "state": "canceled" if self.canceled.is_set() else "running",
            "total": len(self.targets),
            "active": len(active),
            "active_ranks": str(active),
        }
