"""The search: every state of a small world, breadth first, and every way that leads on from it.

A state that was met before, by its identity, is not followed again. The judge is carried along the
first path to each state, which is a shortest one, and judges every transition out of the state.

With the states of the rules, the search learns on its way which records the rules compare
(`Order`). When it has learned something, it begins again: it may have taken two states for one.
"""

from __future__ import annotations

import resource
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from flux_trio.formats import format_fluid
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.properties.consistency import eventlogs_are_whole
from flux_trio.lab.properties.property import no_job_runs_twice
from flux_trio.lab.stories.outcome import ERROR
from tests.explore.search.compared import COMPARED, READ
from tests.explore.search.identity import identity
from tests.explore.search.judging import Judge, JudgeInOrder, Stood
from tests.explore.search.order import Order
from tests.explore.search.small_world import Choice, SmallWorld, Strike, WorldState

TOLD_EVERY: Final = 2_000
"""The number of transitions after which the progress is printed."""

REHEARSED: Final = 2_000
"""A search that has learned something begins again when it has met so many states, and then again
at eight times as many. So it learns most of what there is to learn from few states."""

AT_REST: Final = (no_job_runs_twice, eventlogs_are_whole)
"""The properties that are checked in each world at rest, as in worlds of seeds; those of job-list
are left out."""

Path: TypeAlias = tuple[int, ...]
"""By step: the place of the chosen one among the choices of the world."""

_Met: TypeAlias = tuple[int, WorldState, Stood]


@dataclass
class Broken:
    """What is broken, with a shortest path to it."""

    name: str
    """The id of the clause, or the name of the property: `error`, `answered`, `once`, `inactive` or
    `stored`."""
    found: str
    path: Path


@dataclass
class Report:
    """How much a search has met so far."""

    plan: Plan
    nstates: int = 1
    ntransitions: int = 0
    depth: int = 0
    nrest: int = 0
    """The number of states at rest: no message waits, no timer is set, and no module is missing."""
    nwaiting: int = 0
    """The number of states that were met, and whose choices were not tried yet."""
    seconds: float = 0.0
    """The time in seconds of the processor."""
    is_complete: bool = False
    broken: Broken | None = None
    nbegun: int = 1
    """How often the search began. The other counts, apart from `seconds`, are of the last time."""
    nlost: int = 0
    """The number of transitions before the search began for the last time."""

    @property
    def rate(self) -> float:
        """The number of transitions in a second of the processor."""
        return (self.ntransitions + self.nlost) / self.seconds if self.seconds else 0.0

    def begin_again(self) -> None:
        """Reset the counts: the search begins again."""
        self.nbegun += 1
        self.nlost += self.ntransitions
        self.nstates, self.ntransitions, self.depth, self.nrest, self.nwaiting = 1, 0, 0, 0, 0
        self.broken, self.is_complete = None, False

    @property
    def memory(self) -> int:
        """The most memory that this process has used, in bytes."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Search:
    """A search through the world of `plan`; raises UnsuitablePlan.

    If it is `with_rules`, states of the world with different states of the judge's rules are
    different, and so are those with another order of the records that the rules may compare.
    """

    def __init__(self, plan: Plan, *, with_rules: bool = False) -> None:
        self.report = Report(plan)
        self.order = Order(COMPARED, READ)
        self._judge = JudgeInOrder(self.order) if with_rules else Judge()
        self._with_rules = with_rules
        self._world = SmallWorld(plan, [self._judge.observe])
        self._known: set[bytes] = set()
        self._before = array("q", [-1])  # by number: the state from which it was met first
        self._by = array("H", [0])  # and by which choice
        self._first = self._world.put_down()
        self._stood, _ = self._judge.put_down(self._first)

    def run(
        self, states_max: int | None = None, tell: Callable[[Report], object] = lambda _: None
    ) -> Report:
        """Try all choices in all states, until all were tried, a property is broken, or
        `states_max` states were met.

        KeyboardInterrupt ends the search, too: the report is of what was met by then.
        """
        report = self.report
        began = time.process_time()
        try:
            while True:
                nlearned = self.order.nlearned
                left = self._search(states_max, lambda: self._tell(began, tell))
                report.is_complete = not left
                if nlearned == self.order.nlearned or _is_full(report, states_max):
                    break
                self._forget()
        except KeyboardInterrupt:
            pass
        self._tell(began, tell)
        return report

    def _search(self, states_max: int | None, tell: Callable[[], None]) -> bool:
        """Search from the first state; return whether states are left to follow."""
        report = self.report
        self._world.take_up(self._first)
        self._judge.take_up(self._stood, self._first)
        first = self._met_first(self._first)
        assert first is not None, "no state is known when a search begins"
        met: list[_Met] = [(0, self._first, first)]
        nlearned = self.order.nlearned
        enough = REHEARSED * 8 ** (report.nbegun - 1)
        while met and not report.broken and not _is_full(report, states_max):
            if report.nstates >= enough and self.order.nlearned > nlearned:
                break
            met = self._follow(met, states_max, tell)
            report.depth += bool(met)
        return bool(met or report.broken)

    def _forget(self) -> None:
        """Begin again, with all that was learned."""
        self.report.begin_again()
        self._known.clear()
        del self._before[1:], self._by[1:]

    def _tell(self, began: float, tell: Callable[[Report], object]) -> None:
        self.report.seconds = time.process_time() - began
        tell(self.report)

    def _follow(
        self, met: list[_Met], states_max: int | None, tell: Callable[[], None]
    ) -> list[_Met]:
        """Follow all states of one depth; return those of the next one, or where it ended."""
        report, world, judge = self.report, self._world, self._judge
        after: list[_Met] = []
        for place, (number, state, stood) in enumerate(met):
            world.take_up(state)
            choices = world.choices()
            if all(isinstance(each, Strike) for each in choices):
                report.nrest += 1
                judge.take_up(stood, state)
                self._look_at_rest(number)
            for by, choice in enumerate(choices):
                world.take_up(state)
                judge.take_up(stood, state)
                world.do(choice)
                report.ntransitions += 1
                if not report.ntransitions % TOLD_EVERY:
                    report.nwaiting = len(met) - place + len(after)
                    tell()
                if found := self._found():
                    report.broken = Broken(*found, (*self._path_to(number), by))
                if report.broken:
                    return after
                reached = world.put_down()
                new = self._met_first(reached)
                if new is not None:
                    self._before.append(number)
                    self._by.append(by)
                    after.append((report.nstates, reached, new))
                    report.nstates += 1
            if _is_full(report, states_max):
                return [*met[place + 1 :], *after]
        return after

    def _met_first(self, state: WorldState) -> Stood | None:
        """Return the judge in this state of the world; None if the state was met before."""
        name = identity(state, self._world.machines)
        stood = None
        if self._with_rules:
            stood, of_judge = self._judge.put_down(state)
            name += of_judge
        if name in self._known:
            return None
        self._known.add(name)
        return stood or self._judge.put_down(state)[0]

    def _found(self) -> tuple[str, str] | None:
        """Return what the last transition has broken: the property, and how."""
        if self._world.errors:
            return ERROR, self._world.errors[0]
        for violation in self._judge.violations:
            return violation.clause, violation.text
        return None

    def _look_at_rest(self, number: int) -> None:
        """Check what must hold when nothing is left to happen."""
        found = at_rest(self._world, self._judge)
        if found is not None:
            self.report.broken = Broken(*found, self._path_to(number))

    def _path_to(self, number: int) -> Path:
        path = []
        while number:
            path.append(self._by[number])
            number = self._before[number]
        return tuple(reversed(path))


def _is_full(report: Report, states_max: int | None) -> bool:
    return states_max is not None and report.nstates >= states_max


def at_rest(world: SmallWorld, judge: Judge) -> tuple[str, str] | None:
    """Return which property a world at rest breaks and how; None if none."""
    for violation in judge.finish():
        return violation.clause, violation.text
    waiting = world.unanswered()
    if waiting:
        return "answered", f"{waiting[0]} has a request that is not answered"
    world.read_store()
    if found := no_job_runs_twice(world):
        return no_job_runs_twice.name, found
    if _may_wait(world.plan):
        return None
    if world.jobs.active:
        return "inactive", f"{format_fluid(min(world.jobs.active), 'f58')} is active at rest"
    if found := eventlogs_are_whole(world):
        return eventlogs_are_whole.name, found
    return None


def _may_wait(plan: Plan) -> bool:
    """Whether jobs may be active at rest: what holds them or stops their queue is in the plan."""
    stops = [each.what for each in plan.actions if each.what in ("queue-stop", "queue-start")]
    is_held = any(not each.urgency for each in plan.jobs)
    is_held |= any(each.what == "urgency" and not each.value for each in plan.actions)
    is_less = any(each.what in ("drain", "down", "exclude") for each in plan.actions)
    return is_held or is_less or stops[-1:] == ["queue-stop"]


def follow(world: SmallWorld, path: Path, after: Callable[[Choice], object]) -> None:
    """Repeat the choices of a path in a world that has begun; call `after` after each step."""
    for place in path:
        choice = world.choices()[place]
        world.do(choice)
        after(choice)
