"""A monitor that is put down: all that it has, as values; and what of it decides later verdicts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, TypeAlias

from flux_trio.judge.engine.causes import Violation
from flux_trio.judge.engine.clock import ClockState
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.knowing import Known
from flux_trio.judge.engine.place import Place, places_of, renumbered
from flux_trio.judge.engine.rule import Rule, State
from flux_trio.judge.engine.selector import Key
from flux_trio.judge.engine.view import View
from flux_trio.trace import Record


class Standing(NamedTuple):
    """A monitor that is put down. Records and states are shared with it: they do not change."""

    facts: Facts
    states: tuple[tuple[tuple[Key, State], ...], ...]
    """By slot: the states with their keys."""
    known: Known
    clock: ClockState
    t: float
    ahead: float
    last: Record | None
    left: tuple[Violation, ...]
    first: tuple[Violation, ...]
    kept: frozenset[str]
    violations: tuple[Violation, ...]


_Noted: TypeAlias = tuple[str, str, int | None, bool, bool, Place, tuple[Place, ...]]


def _noted(each: Violation) -> _Noted:
    """Return what of a violation decides later ones: not its words."""
    about = (each.clause, each.party, each.jobid, each.is_missing, each.may_wait)
    return (*about, each.record.n, each.because)


def relative(standing: Standing, slots: Mapping[View | Rule, int]) -> Hashable:
    """Return what decides later verdicts, without numbers and times of records.

    `slots` has the views and rules whose states are kept, with their slots.
    """
    held = [(each, key, state) for each, at in slots.items() for key, state in standing.states[at]]
    typed: list[tuple[Any, Any]] = [(each.type, state) for each, _, state in held]
    typed.append((Known, standing.known))
    typed.append((tuple[_Noted, ...], tuple(map(_noted, standing.left))))
    typed.append((tuple[_Noted, ...], tuple(map(_noted, standing.first))))
    *live, known, left, first = renumbered(typed)
    pairs = zip(held, live, strict=True)
    states = frozenset((each, key, state) for (each, key, _), state in pairs)
    return (standing.facts, states, known, left, first, _ages(standing, places_of(typed)))


def _ages(standing: Standing, places: list[int]) -> Hashable:
    """Return how many of the `places` are old, when more will be, and when the clock samples."""
    clock, t = standing.clock, standing.t
    counts = [bisect_right(places, clock.old)]
    ages: list[tuple[float, int]] = []
    for at, n in clock.samples:
        count = bisect_right(places, n)
        if count > counts[-1]:
            counts.append(count)
            ages.append((at - t, count))
    return (counts[0], tuple(ages), clock.next_t - t)
