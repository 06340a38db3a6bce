"""A world played by hand: stop at a message, an event, a state or a time, look, and interfere.

hand = ByHand(Plan(seed=1, jobs=(JobPlan(),)))
stopped = hand.run_until(When("sched.alloc", side="send"))
stopped.hold()
hand.crash("sched")
hand.run()
assert hand.outcome().problems == ()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import msgspec

from flux_trio.cores.state import Plain
from flux_trio.formats import FormatError
from flux_trio.lab.catalogue import Strike, When
from flux_trio.lab.catalogue.messages import Flight
from flux_trio.lab.catalogue.places import check_seconds
from flux_trio.lab.plans.files import check_plan, check_when
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.properties.property import Property
from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.lab.stories.fault_moments import NthMessage, flights_of
from flux_trio.lab.stories.outcome import Outcome
from flux_trio.lab.stories.running import STEPS_MAX, PlanRun
from flux_trio.lab.stories.tries import Tries
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import EPOCH, CoresWorld
from flux_trio.lab.world.jobs import States
from flux_trio.protocols import JobState
from flux_trio.trace import Kind, Record, Sink


@dataclass(frozen=True)
class Logged:
    """The moment at which the `nth` event `name` from now on is logged, of one job or of any."""

    name: str
    job: int | None = None
    nth: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.job, int | None):
            raise TypeError(
                f"expected Logged(name of an event, place of a job or None), got {self}"
            )
        if not isinstance(self.nth, int):
            raise TypeError(f"expected Logged with an integer as nth, got {self}")
        if self.nth < 1:
            raise FormatError("int >= 1", self.nth, "nth")  # as a plan says it of a message


@dataclass(frozen=True)
class InState:
    """The moment at which the job at the place `job` of the plan is in the state `state`."""

    job: int
    state: JobState

    def __post_init__(self) -> None:
        if not isinstance(self.job, int) or not isinstance(self.state, JobState):
            raise TypeError(f"expected InState(place of a job, JobState), got {self}")


@dataclass(frozen=True)
class AtTime:
    """The moment so many seconds after the start of the world."""

    seconds: float

    def __post_init__(self) -> None:
        check_seconds(self.seconds)


Until: TypeAlias = When | Logged | InState | AtTime | Callable[["ByHand"], bool]
"""A moment at which to stop: a message, an event, a state, a time, or a function that is asked
after each step."""


def _check_moment(until: object) -> None:
    if not isinstance(until, When | Logged | InState | AtTime) and not callable(until):
        expected = "a When, Logged, InState or At, or a function of a ByHand"
        raise TypeError(f"expected {expected}, got {until!r}")


class NeverReached(Exception):
    """Raised when the moment to stop at did not come: all is at rest, or too many steps were made.

    `why` says which of the two.
    """

    def __init__(self, why: str, until: Until | None = None) -> None:
        super().__init__(why if until is None else f"{why}: {until}")
        self.why = why


@dataclass(frozen=True)
class Stopped:
    """Where a world that is played by hand has stopped.

    `record` has the message or the event of the moment; it is None at a step. A message that was
    sent and not received can be held, released, delayed, dropped or duplicated; an event of the
    broker may be on its way to several receivers, see `flights`.
    """

    hand: ByHand
    record: Record | None = None

    @property
    def flights(self) -> list[Flight]:
        """The message that has stopped the world, once for each receiver that has not taken it."""
        return [] if self.record is None else flights_of(self.hand.world, self.record)

    def hold(self) -> None:
        """Let the message wait until `release`, with what its sender sends after it."""
        for flight in self._on_its_way():
            flight.hold()

    def release(self) -> None:
        """Let a message that is held go on."""
        for flight in self._on_its_way():
            flight.release()

    def delay(self, seconds: float) -> None:
        """Let the message arrive so many seconds later."""
        for flight in self._on_its_way():
            flight.delay(seconds)

    def drop(self) -> None:
        """Let the message be lost."""
        for flight in self._on_its_way():
            flight.drop()

    def duplicate(self) -> None:
        """Let the message arrive twice, although it was sent once."""
        for flight in self._on_its_way():
            flight.duplicate()

    def _on_its_way(self) -> list[Flight]:
        flights = self.flights
        if not flights:
            raise ValueError("expected a message that was sent and not received, got none here")
        self.hand.is_at_rest = False
        return flights


class ByHand:
    """A world and its judge. Faults of the plan strike at their moments, too.

    A plan of the depth `stack` holds Trio, and has to be closed: `with ByHand(plan) as hand`. There
    a turn stops after a message is received, but not at one that is sent: the turn ends first.
    """

    def __init__(
        self, plan: Plan, sinks: Iterable[Sink] = (), *, properties: Iterable[Property] = ()
    ) -> None:
        self._states = States(lambda: self.world.disk.store)
        self.plan_run = self.make_run(plan, [self._states.observe, *sinks], properties)
        self.trace = self.plan_run.trace
        self._tries = Tries(plan)
        self.world.trace.add_sink(self._tries.observe)
        self.is_at_rest = False
        self._outcome: Outcome | None = None
        self._is_ended = False  # the instance has ended, and nobody starts it again
        self._is_to_begin = False  # the instance is to be started again as soon as it has ended

    def make_run(
        self, plan: Plan, sinks: Iterable[Sink], properties: Iterable[Property]
    ) -> PlanRun:
        """Return the run of the plan; a subclass may return one that does more."""
        return PlanRun(plan, sinks, properties, judge=WorldJudge())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    @property
    def world(self) -> CoresWorld:
        return self.plan_run.world

    # --- looking

    def dump(self, module: str) -> Plain:
        """Return the state of a module's core as plain data. Raises KeyError if it is not there."""
        dump: Callable[[], Plain] = self.world.stations[module].core.dump  # type: ignore[attr-defined]
        return dump()

    def dumps(self) -> dict[str, Plain]:
        """Return the state of each module's core as plain data, by module."""
        there = [name for name in self.world.modules if name in self.world.stations]
        return {name: self.dump(name) for name in there}

    def state_of(self, job: int) -> JobState | None:
        """Return the state of the job at a place of the plan; None before it has an id.

        Raises FormatError if the plan has no such job.
        """
        self._check_job(job)
        return self._states.state_of(self.plan_run.owner.ids.get(job, 0))

    # --- going on

    def run_until(self, until: Until) -> Stopped:
        """Go on until the moment; raise NeverReached if it does not come.

        At a message or an event the turn under way is interrupted. What the receiver has taken, it
        has not acted on. Raises TypeError for what is no moment, and FormatError for a job that the
        plan does not have, or a value of a When that no plan can have.
        """
        _check_moment(until)
        match until:
            case When():
                check_when(until)
                sought = NthMessage(until)
                return self._run_to(
                    until,
                    lambda record: (
                        record.message is not None
                        and sought.is_it(record.kind, record.party, record.message)
                    ),
                )
            case Logged():
                if until.job is not None:
                    self._check_job(until.job)
                return self._run_to(until, self._finder(until))
            case InState():
                return self._run_while(until, lambda: self.state_of(until.job) != until.state)
            case AtTime():
                end = EPOCH + until.seconds
                self.world.later(end - self.world.passed, lambda: None)
                return self._run_while(until, lambda: self.world.passed < end)
            case _:
                return self._run_while(until, lambda: not until(self))

    def run(self) -> None:
        """Go on until all is at rest: nothing is left to happen, except to held messages.

        Requests that fail since a module is away, and are made again and again, count as nothing.
        """
        self._tries.begin()
        while self.step():
            pass

    def step(self) -> bool:
        """Let one thing happen; return False if all is at rest, as `run` says."""
        self.is_at_rest = not self.plan_run.step() or self._tries.are_all(self.world)
        if self.world.nsteps >= STEPS_MAX:
            raise NeverReached(f"there is no rest after {STEPS_MAX} steps")
        return not self.is_at_rest

    def _finder(self, sought: Logged) -> Callable[[Record], bool]:
        """Return what finds the nth event."""
        left = sought.nth

        def is_it(record: Record) -> bool:
            nonlocal left
            data = record.data
            if record.kind != Kind.EVENT or data is None or data["name"] != sought.name:
                return False
            if sought.job is None or self.plan_run.owner.ids.get(sought.job) == data["id"]:
                left -= 1
                return left == 0
            return False

        return is_it

    def _run_to(self, until: Until, is_it: Callable[[Record], bool]) -> Stopped:
        found: list[Record] = []

        def look(record: Record) -> None:
            if not found and is_it(record):
                found.append(record)
                self.world.at_once(self.world.stop)

        self.world.trace.add_sink(look)
        try:
            self._run_while(until, lambda: not found)
        finally:
            self.world.trace.remove_sink(look)
        return Stopped(self, found[0])

    def _run_while(self, until: Until, is_early: Callable[[], bool]) -> Stopped:
        self._tries.begin()
        while is_early():
            if not self.step():
                raise NeverReached(f"all is at rest after {self.world.nsteps} steps", until)
        return Stopped(self)

    # --- interfering

    def strike(self, fault: Strike) -> None:
        """Let a fault of the catalogue strike now, whatever its `when` is.

        Raises TypeError for a fault without a moment, and FormatError for one with a wrong value,
        such as a node that the world does not have.
        """
        if not isinstance(fault, Strike):
            raise TypeError(f"expected a fault of the catalogue that has a moment, got {fault!r}")
        faults = (msgspec.structs.replace(fault, when=1),)
        check_plan(msgspec.structs.replace(self.plan_run.plan, faults=faults))
        self.is_at_rest = False
        self.plan_run.note(fault)
        fault.strike(self.world)

    def crash(self, module: str) -> None:
        """End a module with an error, if it is there; nobody loads it again.

        With the kvs the instance ends.
        """
        self._check_module(module)
        self.is_at_rest = False
        self.world.crash(module)
        if self.world.is_essential(module) and self.world.is_up:
            self._is_to_begin = False
            self.world.end_in_order(self._end_life)

    def unload(self, module: str) -> None:
        """Remove a module in order, if it is there, but never the kvs; nobody loads it again."""
        self._check_module(module)
        self.is_at_rest = False
        self.world.unload(module)

    def load(self, module: str) -> None:
        """Start a module, unless it runs; with the kvs all modules, if the instance has ended."""
        self._check_module(module)
        self.is_at_rest = False
        if self.world.is_essential(module):
            self._begin_life()
        elif self._is_ended:
            raise ValueError(f"expected an instance for {module}, got none: load the kvs first")
        self.world.load(module)

    def _check_module(self, module: str) -> None:
        """Raise FormatError if no module has this name."""
        if module not in self.world.modules:
            raise FormatError(f"one of {', '.join(self.world.modules)}", module, "module")

    def _check_job(self, job: int) -> None:
        """Raise FormatError if the plan has no job at this place."""
        njobs = len(self.plan_run.plan.jobs)
        if not 0 <= job < njobs:
            raise FormatError(
                f"the place of one of the {njobs} jobs of the plan, from 0", job, "job"
            )

    def _end_life(self) -> None:
        parties.kill_instance(self.world, 0.0 if self._is_to_begin else None)
        self._is_ended = not self._is_to_begin

    def _begin_life(self) -> None:
        """Start the instance that a crash by hand has ended, or is about to end."""
        self._is_to_begin = True
        if self._is_ended:
            self._is_ended = False
            self.world.begin_life()

    def outcome(self) -> Outcome:
        """Put everything right, run to rest, and check all properties.

        The run is over then: a second call returns the same outcome.
        """
        if self._outcome is None:
            self._begin_life()
            is_at_rest = self.plan_run.play()
            self._outcome = self.plan_run.outcome(is_at_rest=is_at_rest)
        return self._outcome


__all__: Final = ["AtTime", "ByHand", "InState", "Logged", "NeverReached", "Stopped"]
