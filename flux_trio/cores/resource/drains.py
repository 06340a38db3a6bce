"""Which targets are drained, since when and why: folded from `resource.eventlog` (RFC 18). Pure.

Its events are `drain` {idset, nodelist, reason?, overwrite?} and `undrain` {idset, nodelist,
reason?}, as flux-core writes them. A reason may be given later to a target drained without one; the
time stays the first. What is so already is refused, unless a mode says otherwise: `update` leaves
it, `overwrite` takes the new reason, `force-overwrite` the new time, too.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.cores.resource.targets import Hosts
from flux_trio.cores.state import Part
from flux_trio.editions.flux import DrainMode
from flux_trio.formats import Event, FormatError, Idset
from flux_trio.formats.meanings import Stamp
from flux_trio.messages import Errno, FluxError

DRAIN = "drain"
UNDRAIN = "undrain"

_OVERWRITE: Final = {"overwrite": 1, "force-overwrite": 2}  # as the event has it


class _Context(msgspec.Struct, frozen=True):
    idset: str
    nodelist: str
    reason: str | None = None
    overwrite: int = 0


class Drain(NamedTuple):
    """`timestamp` in seconds since the Unix epoch; the reason may be missing."""

    timestamp: Stamp
    reason: str | None


class Drains(Part):
    _drained: dict[int, Drain]

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._drained = {}

    @property
    def targets(self) -> Idset:
        return Idset.of(self._drained)

    def drain(
        self,
        now: float,
        targets: Idset,
        reason: str | None,
        exclude: Idset,
        mode: DrainMode | None = None,
    ) -> Event | None:
        """The event that drains `targets`, None if it is so already.

        Raises FluxError: EEXIST when one of them is drained with a reason, EINVAL when excluded.
        """
        drained = Idset.of(t for t in targets if t in self._drained and self._drained[t].reason)
        if mode == "update":
            targets -= drained
        if mode is not None:
            drained = Idset()
        refused = drained | (targets & exclude)
        if refused:
            what = [drained and "already drained", (targets & exclude) and "excluded"]
            text = f"{_ranks(refused)} {' or '.join(w for w in what if w)}"
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
        """The event that undrains `targets`, None if it is so already.

        Raises FluxError(EEXIST) when one is not drained.
        """
        others = targets - self.targets
        if others and mode is None:
            raise FluxError(Errno.EEXIST, f"{_ranks(others)} not drained")
        targets -= others
        return Event(now, UNDRAIN, self._context(targets, reason)) if targets else None

    def _context(self, targets: Idset, reason: str | None) -> dict[str, Any]:
        context: dict[str, Any] = self._hosts.context(targets)
        return context if reason is None else {**context, "reason": reason}

    def apply(self, event: Event) -> None:
        """Fold one event; names other than these two mean nothing here. FormatError."""
        if event.name not in (DRAIN, UNDRAIN):
            return
        try:
            context = msgspec.convert(event.context or {}, _Context)
        except msgspec.ValidationError as error:
            raise FormatError.of_msgspec(error) from None
        for target in self._hosts.find(context.idset, context.nodelist):
            before = self._drained.pop(target, None)
            if event.name == DRAIN:
                timestamp, reason = event.timestamp, context.reason
                if before and context.overwrite < _OVERWRITE["force-overwrite"]:
                    timestamp = before.timestamp
                if before and before.reason and not context.overwrite:
                    reason = before.reason
                self._drained[target] = Drain(timestamp, reason)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """`{idset: {"timestamp": seconds, "reason": text}}`; the reason is "" if there is none."""
        alike: dict[Drain, list[int]] = {}
        for target in sorted(self._drained):
            alike.setdefault(self._drained[target], []).append(target)
        return {
            str(Idset.of(targets)): {"timestamp": drain.timestamp, "reason": drain.reason or ""}
            for drain, targets in alike.items()
        }


def _ranks(targets: Idset) -> str:
    return f"rank{'s' if len(targets) > 1 else ''} {targets}"
