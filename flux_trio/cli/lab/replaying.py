"""The world of `flux-trio replay`: played from a plan or a seed, to its end or step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import click
import msgspec

from flux_trio._version import __version__
from flux_trio.cli.terminal.errors import Unusable
from flux_trio.config import is_policy_of_file
from flux_trio.formats import FormatError
from flux_trio.jobtap import PluginError, reporting_failures
from flux_trio.lab import Plan, Property, PropertyRaised, draw_plan, plan_of_file, property_errors
from flux_trio.lab.plans.files import program_of
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.lab.stories.by_hand import ByHand, Stopped
from flux_trio.lab.stories.states import GONE, WatchedRun
from flux_trio.lab.stories.telling import place_of_break
from flux_trio.lab.world.cores_world import EPOCH
from flux_trio.lab.world.disk import StoreKind
from flux_trio.lab.world.plugin_files import check_files
from flux_trio.services.policy_files import load_policy
from flux_trio.trace import Record, Sink
from flux_trio.views import telling

MARGIN: Final = " " * 15
"""States are to the right of the times of records."""


def is_seed(source: str) -> bool:
    """Return whether a plan is to be drawn from the number `source`."""
    return source.isascii() and source.isdigit()


def read_plan(source: str, depth: Depth | None = None, store: StoreKind | None = None) -> Plan:
    """Return the plan of a seed or of a file, with another `depth` and `store` if given.

    Raises Unusable, which says why there is none.
    """
    changes = {key: value for key, value in (("depth", depth), ("store", store)) if value}
    if is_seed(source):
        return msgspec.structs.replace(draw_plan(int(source)), **changes)
    path = Path(source)
    try:
        plan = msgspec.structs.replace(plan_of_file(path), **changes)
        check_files(plan.plugins, plan.depth)
        if is_policy_of_file(plan.policy):
            load_policy(plan.policy)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None
    except UnicodeError:
        expected = "a plan as TOML or a trace as JSON lines"
        raise Unusable(f"{path}: expected {expected}, got bytes that are no UTF-8 text") from None
    except (FormatError, PluginError) as error:
        program = other_program(source)
        wrote = f" (flux-trio {program} wrote it, and this is {__version__})" if program else ""
        raise Unusable(f"{path}: the plan cannot be played: {error}{wrote}") from None
    return plan


def other_program(source: str) -> str:
    """Return the version of the program that wrote the file of a plan, if it is another one."""
    if is_seed(source):
        return ""
    try:
        program = program_of(Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeError):
        return ""
    return program if program != __version__ else ""


@contextmanager
def reporting_raised(plan: Plan) -> Iterator[list[BaseException]]:
    """Report a property that raises as an Unusable; the value is the list of errors of plugins."""
    errors: list[BaseException] = []
    try:
        with property_errors(plan.seed), reporting_failures(errors.append):
            yield errors
    except PropertyRaised as error:
        raise Unusable(str(error)) from None


class Shown(Protocol):
    """What is replayed."""

    @property
    def nsteps(self) -> int:
        """How many turns were replayed."""

    @property
    def states(self) -> Mapping[str, object]:
        """The modules that are there, and the states of their cores."""

    def news(self) -> Iterable[str]:
        """Return lines on the last turn."""

    def broken_so_far(self) -> set[str]:
        """Return the clauses that are broken."""

    def whole_state(self, module: str) -> Iterable[str]:
        """Return lines on the state of a core."""


def show_state(game: Shown, module: str) -> None:
    """Print the state of a core."""
    for line in list(game.whole_state(module)) or [f"{MARGIN}{module}: empty"]:
        click.echo(line)


class Replay(WatchedRun):
    """A world that is played once more, and judged; `looks` is called after each step.

    When `looks` returns False, nothing more is played. If the property `until` looks at the whole
    trace, the world is played before, to find the record since which it is broken.
    """

    def __init__(
        self,
        plan: Plan,
        properties: Iterable[Property],
        looks: Callable[[Replay], bool],
        until: str | None = None,
        sinks: Iterable[Sink] = (),
    ) -> None:
        properties = tuple(properties)
        self._breaks_at = place_of_break(plan, until, properties) if until else 0
        self._until = until
        self.records: list[Record] = []
        self._looks = looks
        self._nshown = 0
        self._nchanges = 0
        super().__init__(plan, [self.records.append, *sinks], properties, judge=WorldJudge())

    @property
    def nsteps(self) -> int:
        """How many steps the world has made."""
        return self.world.nsteps

    def step(self) -> bool:
        """Let one thing happen; False if nothing is left to happen."""
        is_alive = super().step()
        if is_alive and not self._looks(self):
            raise Ended
        return is_alive

    def broken_so_far(self) -> set[str]:
        """Return the clauses and properties that are broken up to here.

        Of the properties over the trace there is `until` alone; those at rest are not known yet.
        """
        assert self.judge is not None
        broken = {each.clause for each in self.judge.violations} | self.broken.keys()
        broken |= {each.name for each, watcher in self._watchers.items() if watcher.problem}
        if self._until and 0 < self._breaks_at <= self.records[-1].n:
            broken.add(self._until)
        return broken

    def news(self) -> Iterator[str]:
        """Yield lines on the records since the last call, then on what changed in the cores."""
        for record in self.records[self._nshown :]:
            yield telling([record], self.records[0].t)
        for change in self.changes[self._nchanges :]:
            for line in change.lines:
                yield f"{MARGIN}{change.module}: {line}"
        self._nshown, self._nchanges = len(self.records), len(self.changes)

    def whole_state(self, module: str) -> Iterator[str]:
        """Yield the state of a core, a line for each place."""
        self.look()
        if module in self.states and module not in self.world.stations:
            yield f"{MARGIN}{module}: {GONE}"
        for place, value in self.states.get(module, {}).items():
            yield f"{MARGIN}{module}: {place} = {value}"


class HandReplay(ByHand):
    """A `Replay` that is played by hand."""

    replay: Replay

    def __init__(
        self,
        plan: Plan,
        properties: Iterable[Property],
        looks: Callable[[Replay], bool],
        until: str | None = None,
    ) -> None:
        self._looks = looks
        self._until = until
        super().__init__(plan, properties=properties)

    def make_run(self, plan: Plan, sinks: Iterable[Sink], properties: Iterable[Property]) -> Replay:
        """Return the replay."""
        self.replay = Replay(plan, properties, self._looks, self._until, sinks)
        return self.replay

    def when(self) -> str:
        """Return how far the world has come, in words."""
        seconds = self.world.passed - EPOCH
        return f"after {self.world.nsteps} turns, {seconds:g} s after the start"

    def rest_lines(self, held: Iterable[Stopped]) -> Iterator[str]:
        """Yield lines on a world at rest: jobs, who is not there, what is held, what is broken."""
        yield f"at rest {self.when()}"
        for place in range(len(self.plan_run.plan.jobs)):
            state = self.state_of(place)
            said = "has no id yet" if state is None else f"is in {state.name}"
            yield f"  job {place} {said}"
        for module in self.world.modules:
            if module not in self.world.stations:
                yield f"  {module} is not there"
        for stopped in held:
            yield from (f"  {each} is held" for each in on_their_way(stopped))
        broken = ", ".join(sorted(self.replay.broken_so_far()))
        yield f"  broken so far: {broken}" if broken else "  no property is broken so far"


def on_their_way(stopped: Stopped) -> list[str]:
    """Return the message of a stop for each receiver that has not taken it."""
    return [
        f"{type(each.message).__name__.lower()} {getattr(each.message, 'topic', '')} "
        f"to {each.station.name}"
        for each in stopped.flights
    ]


class Ended(Exception):
    """Nothing more is played."""
