"""Exercises: drive a scheduler, execution service or job manager of somebody else, and judge it.

The program runs in a process of its own and connects to a real instance that lacks this service. An
exercise is a list of acts: it is started, gets work, is killed, comes back. Then each clause that
binds the program is kept, broken or not exercised.
"""

from flux_trio.lab.exercise.acts import OF_MANAGER, OF_SCHEDULER, Ability, Act, Order
from flux_trio.lab.exercise.execution import EXEC_ACTS
from flux_trio.lab.exercise.findings import Ended, Findings
from flux_trio.lab.exercise.managing import MANAGER_ACTS
from flux_trio.lab.exercise.program import Driven, ProgramNotStarted
from flux_trio.lab.exercise.run import (
    EXEC_KIT,
    MANAGER_KIT,
    SCHED_KIT,
    Kit,
    Part,
    Report,
    exercise,
    process,
    sched_kit,
)
from flux_trio.lab.exercise.scheduling import SCHED_ACTS, SCHED_LIMITED_ACTS
from flux_trio.lab.exercise.stage import UNHARMED, Stuck

__all__ = [
    "EXEC_ACTS",
    "EXEC_KIT",
    "MANAGER_ACTS",
    "MANAGER_KIT",
    "OF_MANAGER",
    "OF_SCHEDULER",
    "SCHED_ACTS",
    "SCHED_KIT",
    "SCHED_LIMITED_ACTS",
    "UNHARMED",
    "Ability",
    "Act",
    "Driven",
    "Ended",
    "Findings",
    "Kit",
    "Order",
    "Part",
    "ProgramNotStarted",
    "Report",
    "Stuck",
    "exercise",
    "process",
    "sched_kit",
]
