"""Job 1 brought to each place where a job can wait, and led on from there to its end."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from flux_trio.config import parse_config
from flux_trio.cores.job_manager.calls import User, UserFound
from flux_trio.protocols import CREATE, VALIDATE, HookAnswer, JobState, SetPriority
from tests.support.manager_script import PLUGIN, PRIORITIZE, USERID, ManagerScript, Saying, posting

CLOSED: Final = parse_config("[queues.closed.policy.access]\nallow-user = ['alice']")
"""A queue whose jobs wait in NEW until the user database has named their user."""

DEPENDENCY: Final = {"description": "d"}
PROLOG: Final = {"description": "p"}
ANSWERS: Final[dict[str, Saying]] = {
    CREATE: posting(("dependency-add", DEPENDENCY)),
    PRIORITIZE: HookAnswer(),  # no plugin knows a priority yet
    "job.state.run": posting(("prolog-start", PROLOG)),
}
"""Plugins that keep the job in DEPEND, PRIORITY and RUN until the test leads it on."""


class Stage(Enum):
    """Where job 1 waits, with its state there."""

    NEW = JobState.NEW, "user database asked"
    DEPEND = JobState.DEPEND, "dependency open"
    PRIORITY = JobState.PRIORITY, "priority unavailable"
    SCHED = JobState.SCHED, "sched.alloc sent"
    PROLOG = JobState.RUN, "prolog open"
    RUN = JobState.RUN, "shells started"
    CLEANUP = JobState.CLEANUP, "shells finished"
    INACTIVE = JobState.INACTIVE, "over"

    @property
    def state(self) -> JobState:
        """The state of RFC 21."""
        return self.value[0]


WAITING: Final = tuple(stage for stage in Stage if stage is not Stage.INACTIVE)
"""Where the job manager keeps the job."""


def _grant(m: ManagerScript) -> list[str]:
    """Give the job a core of each of two ranks."""
    m.store_r(1, {0: [0], 1: [0]})
    return m.alloc(1)


_ON: Final[dict[Stage, Callable[[ManagerScript], Any]]] = {
    Stage.NEW: lambda m: m.put(UserFound(USERID, User("alice"))),
    Stage.DEPEND: lambda m: m.post(1, "dependency-remove", **DEPENDENCY),
    Stage.PRIORITY: lambda m: m.put(SetPriority(1, 16, PLUGIN)),
    Stage.SCHED: _grant,
    Stage.PROLOG: lambda m: m.post(1, "prolog-finish", **PROLOG, status=0) + m.execute(1, "start"),
    Stage.RUN: lambda m: m.execute(1, "finish"),
    Stage.CLEANUP: lambda m: m.execute(1, "release final") + m.freed(1),
}
"""What leads from each stage to the next one."""


def job_at(stage: Stage, **answers: Saying) -> ManagerScript:
    """Return a job manager whose job 1 waits at `stage`; `answers` are those of more plugins."""
    first = ManagerScript(config=CLOSED, users={USERID: User("alice")}, hooks=[VALIDATE])
    first.submit(1, queue="closed")
    m = first.restarted(config=CLOSED, answers=ANSWERS | answers, peers=True)
    go_on(m, Stage.NEW, stage)
    return m


def restarted(m: ManagerScript) -> ManagerScript:
    """Return the next job manager over the store of `m`, with the same plugins."""
    return m.restarted(config=CLOSED, answers=ANSWERS, peers=True)


def go_on(m: ManagerScript, here: Stage, there: Stage = Stage.INACTIVE) -> list[str]:
    """Lead job 1 from one stage to another. Return the names of the events logged meanwhile."""
    before = len(m.log(1))
    stages = list(Stage)
    for stage in stages[stages.index(here) : stages.index(there)]:
        _ON[stage](m)
    return m.names(1)[before:]


def states(m: ManagerScript) -> dict[JobState, int]:
    """Return how many jobs are in each state, as the job manager counts them."""
    counts = m.stats()["states"]
    return {JobState[name.upper()]: count for name, count in counts.items() if count}
