"""Properties of a user: functions that look at a world, beside the clauses of the judge.

A property says in one sentence what is wrong, or nothing:

    @over_trace("once")
    def no_job_runs_twice(trace: Sequence[Record]) -> str: ...

`run_plan(plan, properties=[no_job_runs_twice])` has it among the problems, as `once: ...`.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flux_trio.formats import format_fluid, parse_eventlog
from flux_trio.jobtap.failures import attempt
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.protocols import JobEvent
from flux_trio.trace import Kind, Record


@dataclass(frozen=True)
class Property:
    """A property of worlds: `check` returns what is wrong in one sentence, or "" or None.

    `looks_at` says when `check` is called, and with what: at the end with the whole trace
    ("trace"), or with the world after each step ("step"), at each pause ("pause"), or when all has
    come to rest after the faults ("rest"). For "records" it is a class of watchers, see `watching`.
    """

    name: str
    looks_at: Literal["trace", "step", "pause", "rest", "records"]
    check: Callable[[Any], Any]
    modules: tuple[str, ...] = ()
    """At a pause: the modules that have to be well; empty if no fault may be at work at all. Over
    the trace: the modules that are judged, none of which may have lied."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or ":" in self.name:
            raise ValueError(
                f"expected the name of a property, a text without a colon, got {self.name!r}"
            )
        if inspect.iscoroutinefunction(self.check):
            raise TypeError(
                f"property {self.name}: expected a plain function, got the async {self.check!r}"
            )

    def __call__(self, seen: Any) -> str:
        found, error = attempt(self._find, seen)
        if error is not None:
            error.add_note(f"The property {self.name} has raised this.")
            raise error
        return str(found)

    def _find(self, seen: Any) -> str:
        return sentence(self.name, self.check(seen))

    def watch(self, world: CoresWorld) -> Watcher:
        """Return a watcher of `world`, for a property that looks at records."""
        watcher: Watcher = self.check(world)
        return watcher


class Watcher:
    """Looks at the records of one world as they come, and keeps what it needs of them.

    Subclasses call `found` with what is wrong; `problem` is the first of it.
    """

    def __init__(self, world: CoresWorld) -> None:
        self.world = world
        self.problem = ""

    def observe(self, record: Record) -> None:
        """Look at the next record of the trace."""

    def pause(self) -> None:
        """Look at the world while nobody acts for a second and the property's modules are well."""

    def rest(self) -> None:
        """Look at the world when all has come to rest after the faults."""

    def found(self, problem: str) -> None:
        """Note what is wrong, in one sentence; only the first one is kept."""
        self.problem = self.problem or sentence(type(self).__name__, problem)


def sentence(name: str, said: object) -> str:
    """Return the text in which the property `name` says what is wrong. `said` is its result: a
    text, or None for nothing. Raises TypeError for another value.
    """
    if said is None:
        return ""
    if not isinstance(said, str):
        expected = "a sentence that says what is wrong, or an empty text"
        raise TypeError(f"property {name}: expected {expected}, got {said!r}")
    return said


def over_trace(name: str, *modules: str) -> Callable[[Callable[[Sequence[Record]], str]], Property]:
    """Make a property of a function that gets the whole trace.

    With `modules`, which it judges, it is not called if a fault has let one of them lie.
    """
    return lambda check: Property(name, "trace", check, modules)


def after_each_step(name: str) -> Callable[[Callable[[CoresWorld], str]], Property]:
    """Make a property of a function that gets the world after each step."""
    return lambda check: Property(name, "step", check)


def at_each_pause(name: str, *modules: str) -> Callable[[Callable[[CoresWorld], str]], Property]:
    """Make a property of a function that gets the world when nobody acts for a second.

    It is not called while a fault is at work: a module is away, hangs or lies, or the disk fails.
    With `modules` it is called while these are there, do not hang, and have read their messages.
    """
    return lambda check: Property(name, "pause", check, modules)


def watching(name: str, *modules: str) -> Callable[[type[Watcher]], Property]:
    """Make a property of a class that looks at the records of one world as they come.

    `modules` are as for `at_each_pause`.
    """
    return lambda watcher: Property(name, "records", watcher, modules)


def at_rest(name: str) -> Callable[[Callable[[CoresWorld], str]], Property]:
    """Make a property of a function that gets the world at rest, after the faults."""
    return lambda check: Property(name, "rest", check)


@at_rest("once")
def no_job_runs_twice(world: CoresWorld) -> str:
    """The stored eventlog of each job has at most one start event and one finish event."""
    store = world.disk.store
    keys = [key for key in store.dir("") if key.startswith("job.") and key.endswith(".eventlog")]
    for key, text in zip(keys, store.lookup(keys), strict=True):
        names = Counter(
            event.name for event in parse_eventlog(text if isinstance(text, str) else "")
        )
        for name in (JobEvent.START, JobEvent.FINISH):
            if names[name] > 1:
                return f"{key} has {names[name]} {name} events"
    return ""


@over_trace("accounted")
def resources_are_accounted_for(trace: Sequence[Record]) -> str:
    """Whatever is granted to a job is free again at the end."""
    held: set[int] = set()
    for record in trace:
        if record.kind == Kind.CONFIG:
            held.clear()  # the instance begins anew, from the events that were stored
        elif record.kind == Kind.EVENT and record.data is not None:
            match record.data["name"]:
                case JobEvent.ALLOC:
                    held.add(record.data["id"])
                case JobEvent.FREE:
                    held.discard(record.data["id"])
    names = ", ".join(format_fluid(jobid, "f58") for jobid in sorted(held))
    return f"the resources of {names} are not free" if held else ""
