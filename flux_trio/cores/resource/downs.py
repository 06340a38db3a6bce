"""Which targets are down, since when, why, and who has put them down. Pure.

The events are `offline` {idset, nodelist, by, reason} and `online` {idset, nodelist, by}. A target
is down because the operator says so, because the check command (`[resource.check]`) has failed for
it, or because this machine lacks its cores when the service starts. The operator overrides the
others: the check does not bring up a target that the operator has put down, and after `online` by
the operator a target is up until the check finds it down again. The eventlog does not have the
targets that the start finds, since each start looks for them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from flux_trio.cores.resource.marks import Context, Marks, ranks
from flux_trio.cores.resource.targets import Hosts
from flux_trio.editions.flux import DownTargets
from flux_trio.formats import Event, Idset
from flux_trio.formats.meanings import Stamp
from flux_trio.messages import Errno, FluxError

OFFLINE: Final = "offline"
ONLINE: Final = "online"

By = Literal["operator", "check", "start"]


class _Context(Context, frozen=True):
    by: By | None = None
    reason: str = ""


class Down(NamedTuple):
    """`timestamp` in seconds since the Unix epoch; `reason` is "" if it is not known."""

    timestamp: Stamp
    by: By
    reason: str


class Downs(Marks[_Context, Down]):
    """The targets that are down."""

    marking = OFFLINE
    clearing = ONLINE

    def __init__(self, hosts: Hosts) -> None:
        super().__init__(hosts, _Context)

    def down_by(self, by: By) -> Idset:
        """Return the targets that are down because `by` said so."""
        return Idset.of(target for target, down in self._marks.items() if down.by == by)

    def find_missing(self, now: float, missing: Mapping[int, str]) -> None:
        """Mark, at a start, the targets that this machine lacks and that are not down already."""
        for target, reason in missing.items():
            self._marks.setdefault(target, Down(now, "start", reason))

    def down(self, now: float, targets: Idset, by: By, reason: str) -> Event | None:
        """Return the event that puts `targets` down, None if that changes nothing."""
        changed = Idset.of(target for target in targets if self._is_news(target, by, reason))
        if not changed:
            return None
        return Event(now, OFFLINE, self._hosts.context(changed) | {"by": by, "reason": reason})

    def _is_news(self, target: int, by: By, reason: str) -> bool:
        before = self._marks.get(target)
        if before is None:
            return True
        if by != "operator":
            return False
        return before.by != by or reason not in ("", before.reason)

    def up(self, now: float, targets: Idset, by: By) -> Event | None:
        """Return the event for the `targets` that `by` may bring up; None if no target changes.

        Raises FluxError(EINVAL) when the operator names a target that is not down.
        """
        if by == "operator":
            if others := targets - self.targets:
                raise FluxError(Errno.EINVAL, f"{ranks(others)} not down")
        else:
            targets &= self.down_by(by)
        return Event(now, ONLINE, self._hosts.context(targets) | {"by": by}) if targets else None

    def _counts(self, context: _Context) -> bool:
        """flux-core's `offline` and `online` say which brokers had answered, and have no `by`."""
        return context.by is not None

    def _mark(self, timestamp: float, context: _Context, before: Down | None) -> Down:
        assert context.by is not None
        since = timestamp if before is None else before.timestamp
        return Down(since, context.by, context.reason)

    def for_status(self) -> dict[str, DownTargets]:
        return {idset: DownTargets(*down) for idset, down in self.by_idset().items()}
