"""Small worlds in which mistakes are looked for that fuzz has left alive.

Each is explored from its start until so many states are met, nearest first. They are smaller than
those of `make explore`: a mistake that shows in a small world shows there soon.
"""

from __future__ import annotations

from typing import Final

from flux_trio.lab import Crash, JobPlan, OwnerRequest, Plan

STATES_MAX: Final = 3500
"""Some seconds of a processor. The worlds before cancel-nowhere have fewer states."""
ROUNDS: Final = (9, 15)
"""Worlds that have been explored at the end of each round: first those that are soon complete."""

_ANYTIME: Final = 1  # the moment of a fault that is explored: every one
_HELD: Final = 0

_CANCEL: Final = OwnerRequest(0.0, "cancel")
_HOLD: Final = OwnerRequest(0.0, "urgency", value=_HELD)
_STOP: Final = OwnerRequest(0.0, "queue-stop")
_DOWN: Final = OwnerRequest(0.0, "down")
_EXCLUDE: Final = (OwnerRequest(0.0, "exclude", rank=1), OwnerRequest(0.0, "include"))
_EXEC: Final = Crash("job-exec", _ANYTIME)
_SCHED: Final = Crash("sched", _ANYTIME)


def _world(
    *what: OwnerRequest | Crash, jobs: tuple[JobPlan, ...] = (JobPlan(),), nnodes: int = 1
) -> Plan:
    """Return a plan with one core on each node."""
    actions = tuple([each for each in what if isinstance(each, OwnerRequest)])
    faults = tuple([each for each in what if isinstance(each, Crash)])
    return Plan(0, nnodes, 1, jobs=jobs, actions=actions, faults=faults)


_TWO: Final = (JobPlan(), JobPlan())
_WIDE: Final = (JobPlan(nnodes=2),)

SMALL_WORLDS: Final[dict[str, Plan]] = {
    "hold": _world(_HOLD),
    "cancel": _world(_CANCEL),
    "drain": _world(OwnerRequest(0.0, "drain"), OwnerRequest(0.0, "undrain"), jobs=_WIDE, nnodes=2),
    "exclude": _world(*_EXCLUDE, jobs=_WIDE, nnodes=2),
    "down": _world(_DOWN, OwnerRequest(0.0, "up"), jobs=_WIDE, nnodes=2),
    "hold-nowhere": _world(_HOLD, _DOWN),
    "stop-nowhere": _world(_STOP, _DOWN),
    "exec-crash": _world(_EXEC),
    "sched-crash": _world(_SCHED),
    "cancel-nowhere": _world(_CANCEL, _DOWN),
    "cancel-and-exec-crash": _world(_CANCEL, _EXEC),
    "cancel-and-sched-crash": _world(_CANCEL, _SCHED),
    "hold-and-sched-crash": _world(_HOLD, _SCHED),
    "exec-and-sched-crash": _world(_EXEC, _SCHED),
    "queue-stop": _world(_STOP, OwnerRequest(0.0, "queue-start"), jobs=_TWO),
}
"""In those that are called nowhere the only node goes down and stays so: requests stay open."""
