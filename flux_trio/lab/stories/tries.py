"""The end of a world in which requests are repeated for ever: each fails, because the module that
would answer is away, and nobody loads it.
"""

from __future__ import annotations

from math import inf
from typing import Final

from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.world.clients import LATER
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import Request, Response
from flux_trio.trace import Record

IN_VAIN_S: Final = 100.0
"""Seconds without anything but repeated requests, after which a world has come to its end: modules
wait longer only for jobs and for requests of the plan. At depth `stack` the timers of modules are
not known, so time decides."""


class Tries:
    """Finds out that nothing happens in a world any more but requests that fail and are repeated.

    That is so when no other record has come for IN_VAIN_S seconds and the longest time of the plan,
    and each timer that was set by then has fired.
    """

    def __init__(self, plan: Plan) -> None:
        jobs = [max(each.at, each.run, each.limit) for each in plan.jobs]
        self._quiet_s = IN_VAIN_S + max([*jobs, *(each.at for each in plan.actions)], default=0.0)
        self.begin()

    def begin(self) -> None:
        """Begin to count the quiet time anew."""
        self._is_other = True  # something else has happened since the last step
        self._end = inf  # when the time is over
        self._are_timers_known = False  # whether `end` is that of all timers

    def observe(self, record: Record) -> None:
        """Note whether the next record of the trace is more than a repeated request."""
        match record.message:
            case Request():
                pass
            case Response() as response if response.errnum in LATER:
                pass
            case _:
                self._is_other = True

    def are_all(self, world: CoresWorld) -> bool:
        """Return whether only repeated requests happen any more; call it after each step."""
        if self._is_other or world.agenda.next_at is not None:
            self._is_other = self._are_timers_known = False
            self._end = world.passed + self._quiet_s
        if world.passed <= self._end:
            return False
        if not self._are_timers_known:
            self._are_timers_known = True
            self._end = max([each.last_timer for each in world.stations.values()], default=0.0)
            return self._end <= world.passed
        return True
