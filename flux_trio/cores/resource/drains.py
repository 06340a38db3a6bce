"""Which targets are drained, since when and why. Pure.

The events are `drain` {idset, nodelist, reason?, overwrite?} and `undrain` {idset, nodelist,
reason?}, as flux-core writes them. A target that was drained without a reason may be given one
later; its time stays the first. A request to drain a target that is drained with a reason is
refused, unless it has a mode: `update` leaves that target as it is, `overwrite` takes the new
reason, `force-overwrite` takes the new reason and the new time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from flux_trio.cores.resource.marks import Context, Marks, ranks
from flux_trio.cores.resource.targets import Hosts
from flux_trio.editions.flux import DrainedTargets, DrainMode
from flux_trio.formats import Event, Idset
from flux_trio.formats.meanings import Stamp
from flux_trio.messages import Errno, FluxError

DRAIN = "drain"
UNDRAIN = "undrain"

_OVERWRITE: Final = {"overwrite": 1, "force-overwrite": 2}  # as the event has it


class _Context(Context, frozen=True):
    reason: str | None = None
    overwrite: int = 0


class Drain(NamedTuple):
    """`timestamp` in seconds since the Unix epoch; `reason` is None if it is not known."""

    timestamp: Stamp
    reason: str | None


class Drains(Marks[_Context, Drain]):
    """The drained targets."""

    marking = DRAIN
    clearing = UNDRAIN

    def __init__(self, hosts: Hosts) -> None:
        super().__init__(hosts, _Context)

    def drain(
        self,
        now: float,
        targets: Idset,
        reason: str | None,
        exclude: Idset,
        mode: DrainMode | None = None,
    ) -> Event | None:
        """Return the event that drains `targets`, None if that changes nothing.

        Raises FluxError: EEXIST if a target is drained with a reason, EINVAL if one is excluded.
        """
        drained = Idset.of(t for t in targets if t in self._marks and self._marks[t].reason)
        if mode == "update":
            targets -= drained
        if mode is not None:
            drained = Idset()
        refused = drained | (targets & exclude)
        if refused:
            what = [drained and "already drained", (targets & exclude) and "excluded"]
            text = f"{ranks(refused)} {' or '.join(w for w in what if w)}"
            raise FluxError(Errno.EEXIST if drained else Errno.EINVAL, text)
        if not targets:
            return None
        context = self._context(targets, reason)
        if mode in _OVERWRITE:
            context["overwrite"] = _OVERWRITE[mode]
        return Event(now, DRAIN, context)

    def undrain(
        self, now: float, targets: Idset, reason: str | None = None, mode: DrainMode | None = None
    ) -> Event | None:
        """Return the event that undrains `targets`, None if that changes nothing.

        Raises FluxError(EEXIST) if a target is not drained.
        """
        others = targets - self.targets
        if others and mode is None:
            raise FluxError(Errno.EEXIST, f"{ranks(others)} not drained")
        targets -= others
        return Event(now, UNDRAIN, self._context(targets, reason)) if targets else None

    def _context(self, targets: Idset, reason: str | None) -> dict[str, Any]:
        context: dict[str, Any] = self._hosts.context(targets)
        return context if reason is None else {**context, "reason": reason}

    def _mark(self, timestamp: float, context: _Context, before: Drain | None) -> Drain:
        reason = context.reason
        if before and context.overwrite < _OVERWRITE["force-overwrite"]:
            timestamp = before.timestamp
        if before and before.reason and not context.overwrite:
            reason = before.reason
        return Drain(timestamp, reason)

    def for_status(self) -> dict[str, DrainedTargets]:
        return {
            idset: DrainedTargets(drain.timestamp, drain.reason or "")
            for idset, drain in self.by_idset().items()
        }
