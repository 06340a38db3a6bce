"""Runs of the check command of `[resource.check]`, and their results. Pure.

A sweep runs the command once for each target. The next sweep begins `interval` seconds after this
one began, but not before this one is over. Results are kept until they are written to the eventlog.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flux_trio.cores.resource.targets import Hosts
from flux_trio.cores.state import Part
from flux_trio.formats import Idset
from flux_trio.formats.meanings import Time


class RunCheck(msgspec.Struct, frozen=True):
    """Action: run the check command for a target, and hand back `Checked` or `NotChecked`."""

    target: int
    host: str


class Checked(msgspec.Struct, frozen=True):
    """Input: the check command has checked a target; `problem` is None if it found no problem."""

    target: int
    problem: str | None


class NotChecked(msgspec.Struct, frozen=True):
    """Input: the check command could not be run, so the state of the target is not known."""

    target: int
    text: str


class Checks(Part):
    """Sweeps over `hosts`, one target after the other."""

    _began_at: Time
    _running: set[int]
    _complained: bool
    _found: dict[int, str | None]

    def __init__(self, hosts: Hosts, interval_s: float) -> None:
        self._hosts = hosts
        self._interval_s = interval_s
        self._began_at = 0.0
        self._running = set()  # targets of this sweep without a result
        self._complained = False  # a check that could not be run was logged in this sweep
        self._found = {}  # problems by target, until `pop_found`

    def begin(self, now: float) -> list[RunCheck]:
        """Begin a sweep; the last one must be over."""
        self._began_at, self._complained = now, False
        hosts = self._hosts.by_target
        self._running = set(hosts)
        return [RunCheck(target, host) for target, host in hosts.items()]

    def checked(self, checked: Checked) -> None:
        self._running.discard(checked.target)
        if checked.target in self._hosts.by_target:  # it was there when the check began
            self._found[checked.target] = checked.problem

    def not_checked(self, failed: NotChecked) -> str | None:
        """Return a text for the log, once in a sweep: it would be the same for each target."""
        self._running.discard(failed.target)
        if self._complained:
            return None
        self._complained = True
        return f"rank {failed.target}: the check cannot be run: {failed.text}"

    def next_at(self) -> float | None:
        """Return when the next sweep begins; None while this one goes on."""
        return None if self._running else self._began_at + self._interval_s

    def pop_found(self) -> Iterator[tuple[str | None, Idset]]:
        """Yield the results since the last call: targets by problem, None for no problem."""
        found, self._found = self._found, {}
        alike: dict[str | None, list[int]] = {}
        for target, problem in found.items():
            alike.setdefault(problem, []).append(target)
        for problem, targets in alike.items():
            yield problem, Idset.of(targets)
