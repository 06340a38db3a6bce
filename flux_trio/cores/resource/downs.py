"""Which targets are down, since when, why, and who says so: folded from `resource.eventlog`. Pure.

Its events are `offline` {idset, nodelist, by, reason} and `online` {idset, nodelist, by}. A target
is down by the word of the operator, by that of the check command (`[resource.check]`), or because
this machine lacks its cores when the service starts. The operator's word stands above the others:
the check leaves a target alone that the operator has put down, and `online` by the operator holds
until the check finds the target down again. What the start finds is not in the eventlog, since each
start looks anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from flux_trio.cores.resource.targets import Hosts
from flux_trio.cores.state import Part
from flux_trio.editions.flux import DownTargets
from flux_trio.formats import Event, FormatError, Idset
from flux_trio.formats.meanings import Stamp
from flux_trio.messages import Errno, FluxError

OFFLINE: Final = "offline"
ONLINE: Final = "online"

By = Literal["operator", "check", "start"]


class _Context(msgspec.Struct, frozen=True):
    idset: str
    nodelist: str
    by: By = "operator"
    reason: str = ""


class Down(NamedTuple):
    """`timestamp` in seconds since the Unix epoch; `reason` is "" when none was given."""

    timestamp: Stamp
    by: By
    reason: str


class Downs(Part):
    _down: dict[int, Down]

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._down = {}

    @property
    def targets(self) -> Idset:
        return Idset.of(self._down)

    def down_by(self, by: By) -> Idset:
        """Those that are down by the word of `by`."""
        return Idset.of(target for target, down in self._down.items() if down.by == by)

    def find_missing(self, now: float, missing: Mapping[int, str]) -> None:
        """At a start: what this machine lacks of the targets that are not down already."""
        for target, reason in missing.items():
            self._down.setdefault(target, Down(now, "start", reason))

    def down(self, now: float, targets: Idset, by: By, reason: str) -> Event | None:
        """The event that puts `targets` down, None if that changes nothing."""
        changed = Idset.of(target for target in targets if self._is_news(target, by, reason))
        if not changed:
            return None
        return Event(now, OFFLINE, self._hosts.context(changed) | {"by": by, "reason": reason})

    def _is_news(self, target: int, by: By, reason: str) -> bool:
        before = self._down.get(target)
        if before is None:
            return True
        if by != "operator":
            return False
        return before.by != by or reason not in ("", before.reason)

    def up(self, now: float, targets: Idset, by: By) -> Event | None:
        """The event that ends what `by` may end of it, None if that is nothing.

        Raises FluxError(EINVAL) when the operator names a target that is not down.
        """
        if by == "operator":
            if others := targets - self.targets:
                name = "rank" if len(others) == 1 else "ranks"
                raise FluxError(Errno.EINVAL, f"{name} {others} not down")
        else:
            targets &= self.down_by(by)
        return Event(now, ONLINE, self._hosts.context(targets) | {"by": by}) if targets else None

    def apply(self, event: Event) -> None:
        """Fold one event; names other than these two mean nothing here. FormatError."""
        if event.name not in (OFFLINE, ONLINE):
            return
        try:
            context = msgspec.convert(event.context or {}, _Context)
        except msgspec.ValidationError as error:
            raise FormatError.of_msgspec(error) from None
        for target in self._hosts.find(context.idset, context.nodelist):
            before = self._down.pop(target, None)
            if event.name == OFFLINE:
                since = event.timestamp if before is None else before.timestamp
                self._down[target] = Down(since, context.by, context.reason)

    def by_idset(self) -> dict[str, DownTargets]:
        """The targets that are down, those alike as one idset."""
        alike: dict[Down, list[int]] = {}
        for target in sorted(self._down):
            alike.setdefault(self._down[target], []).append(target)
        return {str(Idset.of(targets)): DownTargets(*down) for down, targets in alike.items()}
