"""When the check command of `[resource.check]` is run, and what it has found. Pure.

A sweep runs it once for each target. The next sweep begins `interval` seconds after this one began,
and not before this one is over. What a sweep finds is kept until it is written to the eventlog.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flux_trio.cores.state import Part
from flux_trio.formats import Idset
from flux_trio.formats.meanings import Time


class RunCheck(msgspec.Struct, frozen=True):
    """Action: run the check command for a target, and hand back `Checked` or `NotChecked`."""

    target: int
    host: str


class Checked(msgspec.Struct, frozen=True):
    """Input: the check command has looked at a target; `problem` is None when it is well."""

    target: int
    problem: str | None


class NotChecked(msgspec.Struct, frozen=True):
    """Input: the check command could not be run: nothing is known of the target."""

    target: int
    text: str


class Checks(Part):
    """One sweep after the other over `hosts`, by target."""

    _began_at: Time
    _running: set[int]
    _complained: bool
    _found: dict[int, str | None]

    def __init__(self, hosts: dict[int, str], interval_s: float) -> None:
        self._hosts = hosts
        self._interval_s = interval_s
        self._began_at = 0.0
        self._running = set()  # targets of this sweep that nobody has told of yet
        self._complained = False  # in this sweep the log has a check that could not be run
        self._found = {}  # by target, latest; not handed out yet

    def begin(self, now: float) -> list[RunCheck]:
        """Begin a sweep; the one before is over."""
        self._began_at, self._complained = now, False
        self._running = set(self._hosts)
        return [RunCheck(target, host) for target, host in self._hosts.items()]

    def checked(self, checked: Checked) -> None:
        """Keep what was found."""
        self._running.discard(checked.target)
        self._found[checked.target] = checked.problem

    def not_checked(self, failed: NotChecked) -> str | None:
        """What the log should say: once in a sweep, since it would be the same for all."""
        self._running.discard(failed.target)
        if self._complained:
            return None
        self._complained = True
        return f"rank {failed.target}: the check cannot be run: {failed.text}"

    def next_at(self) -> float | None:
        """When the next sweep is to begin; None while this one goes on."""
        return None if self._running else self._began_at + self._interval_s

    def take_found(self) -> Iterator[tuple[str | None, Idset]]:
        """What was found since the last time: targets by problem, None for those that are well."""
        found, self._found = self._found, {}
        alike: dict[str | None, list[int]] = {}
        for target, problem in found.items():
            alike.setdefault(problem, []).append(target)
        for problem, targets in alike.items():
            yield problem, Idset.of(targets)
