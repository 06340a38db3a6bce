"""Violations of RFC 26 on dependency events."""

from __future__ import annotations

import msgspec

from flux_trio.trace import Record
from tests.judge.scenarios.dependencies import EPOCH, SUITED, UNSUITED, WELL
from tests.support.judged import Trace, drop, duplicate, edit_note, find_event, move
from tests.support.planted import Planted

PLANTED = Planted()


def removal(trace: Trace, scheme: str) -> Record:
    """The end of the dependency of that scheme."""
    removals = [r for r in trace if r.data and r.data["name"] == "dependency-remove"]
    return next(r for r in removals if r.data["context"]["description"].startswith(f"{scheme}="))


def too_early(clause: str, scheme: str) -> None:
    """The dependency is removed as soon as all are added."""

    def change(trace: Trace) -> Trace:
        added = find_event(trace, "dependency-add", UNSUITED)
        return move(trace, removal(trace, scheme), after=added)[: added.n + 1]

    change.__name__ = f"{clause}: {scheme} is satisfied too early"
    PLANTED.violation(clause, "dependencies", cut=True)(change)


too_early("26.schemes.2", "after")
too_early("26.schemes.4", "afterany")
too_early("26.schemes.5", "afterok")
too_early("26.schemes.6", "afternotok")


def never(clause: str, scheme: str) -> None:
    """Nothing happens to the dependency, nor to the job that waits."""

    def change(trace: Trace) -> Trace:
        rest = [r for r in trace if r.data["id"] == SUITED and r.n >= removal(trace, "after").n]
        left = [r for r in rest if r.data["name"] != "dependency-remove"]
        return drop(trace, removal(trace, scheme), *left)

    change.__name__ = f"{clause}: {scheme} is never satisfied"
    PLANTED.violation(clause, "dependencies")(change)


never("26.schemes.2", "after")
never("26.schemes.4", "afterany")
never("26.schemes.5", "afterok")
never("26.schemes.6", "afternotok")


@PLANTED.violation("26.schemes.3", "dependencies")
def a_job_waits_for_a_start_that_never_comes(trace: Trace) -> Trace:
    rest = [r for r in trace if r.data["id"] == UNSUITED and r.data["name"] in ENDS]
    return drop(trace, *rest)


ENDS = ("exception", "clean")


@PLANTED.violation("26.schemes.7", "dependencies", cut=True)
def a_job_begins_too_early(trace: Trace) -> Trace:
    begins = removal(trace, "begin-time")
    early = msgspec.structs.replace(begins, t=EPOCH + 19)
    return [early if r is begins else r for r in trace][: begins.n]


def described(clause: str, name: str, description: str, nth: int = 0) -> None:
    """The event has another description."""

    def change(trace: Trace) -> Trace:
        event = find_event(trace, name, SUITED, nth=nth)
        return edit_note(trace, event, context={"description": description})[: event.n]

    change.__name__ = f"{clause}: {name} of {description}"
    PLANTED.violation(clause, "dependencies", cut=True)(change)


described("26.events.2", "dependency-remove", "after=f9")
described("26.events.4", "dependency-add", f"after=f{WELL + 1}", nth=1)


@PLANTED.violation("26.events.5", "dependencies", cut=True)
def added_again_after_it_was_satisfied(trace: Trace) -> Trace:
    added, removed = find_event(trace, "dependency-add", SUITED), removal(trace, "after")
    return duplicate(trace, added, after=removed)[: removed.n + 1]


@PLANTED.violation("26.events.3", "dependencies")
def no_depend_event_when_all_are_satisfied(trace: Trace) -> Trace:
    depend = find_event(trace, "depend", SUITED)
    return drop(trace, *[r for r in trace if r.data["id"] == SUITED and r.n >= depend.n])


@PLANTED.violation("26.events.1", "held_up")
def a_client_posts_a_dependency(trace: Trace) -> Trace:
    added = find_event(trace, "dependency-add")
    return [msgspec.structs.replace(r, party="client") if r is added else r for r in trace]
