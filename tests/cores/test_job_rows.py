"""What moves a job and what does not, wherever it waits: JOB by what users and services see."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import pairwise
from typing import Any, Final

import pytest

from flux_trio.config import parse_config
from flux_trio.cores.job_manager.calls import User, UserFound
from flux_trio.formats import format_eventlog
from flux_trio.messages import Response, topics
from flux_trio.protocols import (
    CREATE,
    DESTROY,
    UPDATE_PREFIX,
    UPDATED,
    VALIDATE,
    HookAnswer,
    JobResult,
    JobState,
    JobView,
    SetPriority,
)
from tests.support.eventlogs import event
from tests.support.manager_script import (
    PLUGIN,
    PRIORITIZE,
    USERID,
    HookReply,
    ManagerScript,
    key,
    posting,
)

CLOSED: Final = parse_config("[queues.closed.policy.access]\nallow-user = ['alice']")
"""A queue whose jobs wait in NEW until the user database has named their user."""

DEPENDENCY: Final = {"description": "d"}
PROLOG: Final = {"description": "p"}
ANSWERS: Final[dict[str, HookReply]] = {
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


def job_at(stage: Stage, **answers: HookReply) -> ManagerScript:
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


Doing = Callable[[ManagerScript], Any]

NAME_KEY: Final = "attributes.system.job.name"
DURATION_KEY: Final = "attributes.system.duration"
UPDATES: Final = {
    UPDATE_PREFIX + each: HookAnswer(handled=True) for each in (NAME_KEY, DURATION_KEY)
}
SECOND: Final = {"description": "e"}


def posted(name: str, **context: Any) -> Doing:
    """A plugin posts an event."""
    return lambda m: m.post(1, name, **context)


def update(name: str, value: Any) -> Doing:
    """The owner updates a key of the jobspec."""
    return lambda m: m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {name: value}})


def both(*doings: Doing) -> Doing:
    return lambda m: [doing(m) for doing in doings]


def test_each_step_of_a_job_moves_it_to_the_next_state() -> None:
    """21.states.2, 21.states.5, 21.criteria.8: what it waits for, and where it is then, also by its
    eventlog.
    """
    m = job_at(Stage.NEW)
    for here, there in pairwise(Stage):
        assert states(m) == {here.state: 1}
        assert m.state(1) == here.state
        go_on(m, here, there)
    assert states(m) == {JobState.INACTIVE: 1}
    assert m.job(1).result == JobResult.COMPLETED


FACTS: Final[dict[str, Doing]] = {
    "exception": lambda m: m.raise_(1, 3),
    "memo": lambda m: m.ask(topics.JOB_MEMO, {"id": 1, "memo": {"a": 1}}),
    "set-flags": posted("set-flags", flags=["debug"]),
    "site-event": posted("site-event", a=1),
}
"""What may happen to a job at any time, by the name of the event."""


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("stage", WAITING)
def test_what_only_tells_something_moves_no_job(stage: Stage, fact: str) -> None:
    """21.states.3, 21.states.4, 21.exceptions.3"""
    m, without = job_at(stage), job_at(stage)
    FACTS[fact](m)
    assert m.names(1)[-1] == fact
    assert states(m) == {stage.state: 1}
    assert go_on(m, stage) == go_on(without, stage)


SMALL_STEPS: Final[list[tuple[Stage, str, Doing]]] = [
    (Stage.NEW, "jobspec-update", posted("jobspec-update", **{NAME_KEY: "x"})),
    (Stage.NEW, "dependency-add", posted("dependency-add", **SECOND)),
    (
        Stage.NEW,
        "dependency-remove",
        both(posted("dependency-add", **SECOND), posted("dependency-remove", **SECOND)),
    ),
    (Stage.NEW, "urgency", lambda m: m.urgency(1, 20)),
    (Stage.DEPEND, "jobspec-update", posted("jobspec-update", **{NAME_KEY: "x"})),
    (Stage.DEPEND, "dependency-add", posted("dependency-add", **SECOND)),
    (
        Stage.DEPEND,
        "dependency-remove",
        both(posted("dependency-add", **SECOND), posted("dependency-remove", **SECOND)),
    ),
    (Stage.DEPEND, "urgency", lambda m: m.urgency(1, 20)),
    (Stage.PRIORITY, "jobspec-update", posted("jobspec-update", **{NAME_KEY: "x"})),
    (Stage.PRIORITY, "urgency", lambda m: m.urgency(1, 20)),
    (Stage.SCHED, "priority", lambda m: m.put(SetPriority(1, 20, PLUGIN))),
    (Stage.PROLOG, "jobspec-update", update(NAME_KEY, "x")),
    (Stage.PROLOG, "prolog-start", posted("prolog-start", **SECOND)),
    (
        Stage.PROLOG,
        "prolog-finish",
        both(posted("prolog-start", **SECOND), posted("prolog-finish", **SECOND, status=0)),
    ),
    (Stage.RUN, "jobspec-update", update(NAME_KEY, "x")),
    (Stage.RUN, "release", lambda m: m.execute(1, "release 0")),
    (Stage.CLEANUP, "release", lambda m: m.execute(1, "release 0")),
    (Stage.CLEANUP, "epilog-start", posted("epilog-start", **SECOND)),
    (
        Stage.CLEANUP,
        "epilog-finish",
        both(posted("epilog-start", **SECOND), posted("epilog-finish", **SECOND, status=0)),
    ),
]
"""Where, the name of the event that it ends with, and what is done."""

LEFT_OPEN: Final = {
    "dependency-add": posted("dependency-remove", **SECOND),
    "prolog-start": posted("prolog-finish", **SECOND, status=0),
    "epilog-start": posted("epilog-finish", **SECOND, status=0),
}


@pytest.mark.parametrize(("stage", "name", "do"), SMALL_STEPS)
def test_small_step_leaves_the_job_in_its_state(stage: Stage, name: str, do: Doing) -> None:
    m, without = job_at(stage, **UPDATES), job_at(stage, **UPDATES)
    do(m)
    assert m.names(1)[-1] == name
    assert states(m) == {stage.state: 1}
    if name in LEFT_OPEN:
        LEFT_OPEN[name](m)
        assert states(m) == {stage.state: 1}
    assert go_on(m, stage) == go_on(without, stage)


def test_new_end_of_a_running_job_leaves_it_running() -> None:
    m, without = job_at(Stage.RUN, **UPDATES), job_at(Stage.RUN)
    update(DURATION_KEY, 90.0)(m)
    m.put(Response(topics.SCHED_EXPIRATION, matchtag=m.last(topics.SCHED_EXPIRATION).matchtag))
    assert m.names(1)[-2:] == ["jobspec-update", "resource-update"]
    assert states(m) == {JobState.RUN: 1}
    assert go_on(m, Stage.RUN) == go_on(without, Stage.RUN)


def test_new_end_of_a_job_that_finishes_meanwhile_is_logged() -> None:
    """Plugins think about the jobspec, and the shells finish before the job's new end."""
    m = ManagerScript(peers=True, hooks=[UPDATED], answers=UPDATES)
    m.running(1, duration=60.0)
    update(DURATION_KEY, 90.0)(m)
    proposal = m.last(topics.SCHED_EXPIRATION)
    update(NAME_KEY, "x")(m)
    m.put(Response(topics.SCHED_EXPIRATION, matchtag=proposal.matchtag))
    m.execute(1, "finish")
    m.answer(UPDATED)
    m.answer(UPDATED)
    assert m.names(1)[-4:] == ["jobspec-update", "jobspec-update", "finish", "resource-update"]
    assert states(m) == {JobState.CLEANUP: 1}
    m.execute(1, "release final")
    m.freed(1)
    assert m.names(1)[-4:] == ["resource-update", "release", "free", "clean"]


@pytest.mark.parametrize(
    "do",
    [lambda m: m.urgency(1, 20), posted("jobspec-update", **{NAME_KEY: "x"})],
    ids=["urgency", "jobspec-update"],
)
def test_pending_job_with_another_basis_of_its_priority_waits_for_one_again(do: Doing) -> None:
    """21.states.9"""
    m = job_at(Stage.SCHED)
    do(m)
    assert states(m) == {JobState.PRIORITY: 1}


# --- a fatal exception


@pytest.mark.parametrize("stage", [Stage.NEW, Stage.DEPEND, Stage.PRIORITY, Stage.SCHED])
def test_canceled_job_without_resources_is_over_at_once(stage: Stage) -> None:
    m = job_at(stage)
    m.raise_(1)
    assert m.names(1)[-2:] == ["exception", "clean"]
    assert states(m) == {JobState.INACTIVE: 1}


def test_canceled_job_ends_once_its_prolog_has() -> None:
    m = job_at(Stage.PROLOG)
    m.raise_(1)
    assert states(m) == {JobState.CLEANUP: 1}
    assert m.post(1, "prolog-finish", **PROLOG, status=0) == ["sched.free 1"]
    assert states(m) == {JobState.CLEANUP: 1}
    m.freed(1)
    assert m.names(1)[-4:] == ["exception", "prolog-finish", "free", "clean"]


def test_canceled_job_with_another_prolog_waits_for_that_too() -> None:
    m = job_at(Stage.PROLOG)
    m.post(1, "prolog-start", **SECOND)
    m.raise_(1)
    assert m.post(1, "prolog-finish", **PROLOG, status=0) == []
    assert states(m) == {JobState.CLEANUP: 1}
    assert m.post(1, "prolog-finish", **SECOND, status=0) == ["sched.free 1"]


def test_start_that_crosses_the_cancel_starts_nothing() -> None:
    m = job_at(Stage.PROLOG)
    m.post(1, "prolog-finish", **PROLOG, status=0)
    m.raise_(1)
    assert states(m) == {JobState.CLEANUP: 1}
    m.execute(1, "start")
    assert (m.names(1)[-1], states(m)) == ("start", {JobState.CLEANUP: 1})
    m.execute(1, "finish 15")
    assert (m.names(1)[-1], states(m)) == ("finish", {JobState.CLEANUP: 1})
    assert go_on(m, Stage.CLEANUP) == ["release", "free", "clean"]
    assert m.job(1).result == JobResult.CANCELED


@pytest.mark.parametrize("stage", [Stage.RUN, Stage.CLEANUP])
def test_canceled_job_with_shells_is_over_when_they_are(stage: Stage) -> None:
    m = job_at(stage)
    m.raise_(1)
    assert states(m) == {JobState.CLEANUP: 1}
    ending = ["release", "free", "clean"]
    assert go_on(m, stage) == (["finish", *ending] if stage is Stage.RUN else ending)


# --- a job that never was


def test_plugins_are_told_that_a_refused_job_is_inactive() -> None:
    m = ManagerScript(answers={VALIDATE: HookAnswer(reject="no"), DESTROY: HookAnswer()})
    told: list[tuple[str, JobState]] = []

    def notify(topic: str, job: JobView, _args: Any = None) -> None:
        told.append((topic, job.state))

    m.plugins.notify = notify  # type: ignore[assignment]
    m.submit(1)
    assert told == [(DESTROY, JobState.INACTIVE)]


# --- eventlogs that are read back


@pytest.mark.parametrize("stage", [stage for stage in WAITING if stage is not Stage.SCHED])
def test_restart_that_an_eventlog_tells_of_moves_no_job_but_one_in_sched(stage: Stage) -> None:
    """21.events.19: flux-core may log it in any state."""
    m, without = job_at(stage), job_at(stage)
    m.kvs.commit(["append", f"{key(1)}.eventlog", format_eventlog([event("flux-restart")])])
    again, plain = restarted(m), restarted(without)
    assert states(again) == states(plain)
    assert again.names(1).count("flux-restart") == 1
    assert [name for name in again.names(1) if name != "flux-restart"] == plain.names(1)


def test_job_restarted_in_sched_waits_for_a_priority() -> None:
    """21.states.9"""
    m = job_at(Stage.SCHED)
    again = restarted(m)
    assert again.names(1)[-1] == "flux-restart"
    assert states(again) == {JobState.PRIORITY: 1}
    assert states(restarted(again)) == {JobState.PRIORITY: 1}


def test_epilog_of_flux_core_that_begins_before_the_exception_is_read_back() -> None:
    """flux-core starts an epilog in RUN, before it logs the exception that ends the job."""
    m = job_at(Stage.RUN)
    log = format_eventlog([event("epilog-start", **SECOND)])
    m.kvs.commit(["append", f"{key(1)}.eventlog", log])
    again = restarted(m)
    assert again.names(1)[-3:] == ["epilog-start", "epilog-finish", "exception"]
    assert states(again) == {JobState.RUN: 1}
    again.execute(1, "finish", "release final")
    again.freed(1)
    assert again.names(1)[-4:] == ["finish", "release", "free", "clean"]
