"""The targets that cannot be used because they are drained or down. Pure.

Both are folded from `resource.eventlog` (RFC 18). A request, or a result of the check command,
becomes an event; the event changes the state when it is durable.

The events of drains are `drain` and `undrain` {idset, nodelist?, reason?, overwrite}, as flux-core
writes them; its older versions wrote no nodelist. A target that was drained without a reason may be
given one later; its time stays the first. A request to drain a target that is drained with a reason
is refused, unless it has a mode: `update` leaves that target as it is, `overwrite` takes the new
reason, `force-overwrite` takes the new reason and the new time.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, cast, get_args

from flux_trio.cores.resource.checks import Checks
from flux_trio.cores.resource.downs import Downs
from flux_trio.cores.resource.marks import Context, Marks, ranks
from flux_trio.cores.resource.targets import Hosts, parse_targets
from flux_trio.cores.state import Part
from flux_trio.editions import flux
from flux_trio.editions.flux import DrainedTargets
from flux_trio.formats import Event, FormatError, Idset, ResourceSet, parse_eventlog
from flux_trio.formats.meanings import Stamp
from flux_trio.messages import Errno, FluxError, Request, topics

DRAIN = "drain"
UNDRAIN = "undrain"

Mode = Literal["update", "overwrite", "force-overwrite"]

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
        mode: Mode | None = None,
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
        return Event(now, DRAIN, self._context(targets, reason, mode))

    def undrain(
        self, now: float, targets: Idset, reason: str | None = None, mode: Mode | None = None
    ) -> Event | None:
        """Return the event that undrains `targets`, None if that changes nothing.

        Raises FluxError(EEXIST) if a target is not drained.
        """
        others = targets - self.targets
        if others and mode is None:
            raise FluxError(Errno.EEXIST, f"{ranks(others)} not drained")
        targets -= others
        return Event(now, UNDRAIN, self._context(targets, reason, mode)) if targets else None

    def _context(self, targets: Idset, reason: str | None, mode: Mode | None) -> dict[str, Any]:
        context: dict[str, Any] = self._hosts.context(targets)
        context["overwrite"] = _OVERWRITE.get(mode or "", 0)
        return context if reason is None else {**context, "reason": reason}

    def _counts(self, context: _Context) -> bool:  # noqa: ARG002 - all drains are
        return True

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


class Administration(Part):
    """The drained targets of an `inventory`, and those that are down."""

    stamped: Stamp  # timestamp of the last event

    def __init__(self, inventory: ResourceSet) -> None:
        self.hosts = Hosts(inventory)
        self.drains = Drains(self.hosts)
        self.downs = Downs(self.hosts)
        self.stamped = 0.0
        self._inventory = inventory

    @property
    def unavailable(self) -> Idset:
        """Return the targets that are offline to a scheduler (28.offline.6)."""
        return self.drains.targets | self.downs.targets

    def take(self, inventory: ResourceSet) -> None:
        """Take another inventory; `replay` says then which of its targets are marked."""
        self._inventory = inventory
        self.hosts.take(inventory)

    def replay(self, eventlog: str) -> None:
        """Fold a whole log, and nothing else. Raises FormatError that names the line."""
        self.drains.clear()
        self.downs.clear()
        for number, event in enumerate(parse_eventlog(eventlog), start=1):
            try:
                self.apply(event)
            except FormatError as error:
                raise error.at(f"line {number}") from None

    def stamp(self, now: float) -> float:
        """Return the time for the next event: the clock may have been set back since the last."""
        return max(now, self.stamped)

    def apply(self, event: Event) -> None:
        """Fold one event. Raises FormatError."""
        self.stamped = event.timestamp
        self.drains.apply(event)
        self.downs.apply(event)

    def event_for(self, now: float, request: Request, exclude: Idset) -> Event | None:
        """Return the event for a `request`, None if it changes nothing. Raises FluxError."""
        if request.topic == topics.RESOURCE_DOWN:
            down = flux.DOWN.read(request)
            return self.downs.down(now, self._targets(down.targets), "operator", down.reason)
        if request.topic == topics.RESOURCE_UP:
            up = flux.TARGETS.read(request)
            return self.downs.up(now, self._targets(up.targets), "operator")
        asked = flux.DRAIN.read(request)
        targets = self._targets(asked.targets)
        is_drain = request.topic == topics.RESOURCE_DRAIN
        mode = _mode(asked.mode, "drain" if is_drain else "undrain")
        if is_drain:
            return self.drains.drain(now, targets, asked.reason, exclude, mode)
        return self.drains.undrain(now, targets, asked.reason, mode)

    def events_for(self, now: float, checks: Checks) -> list[Event]:
        """Return the events for the results of the check command."""
        events = [
            self.downs.up(now, targets, "check")
            if problem is None
            else self.downs.down(now, targets, "check", problem)
            for problem, targets in checks.pop_found()
        ]
        return [event for event in events if event is not None]

    def stop_checking(self, now: float) -> Event | None:
        """Return the event that brings up what a check put down, when no check is configured."""
        return self.downs.up(now, self._inventory.ranks, "check")

    def _targets(self, text: str) -> Idset:
        return parse_targets(text, self._inventory)


def _mode(text: str | None, what: str) -> Mode | None:
    if text is None:
        return None
    for mode in get_args(Mode):
        if text == mode:
            return cast(Mode, mode)
    known = ", ".join(get_args(Mode))
    raise FluxError(Errno.EINVAL, f"invalid {what} mode {text!r:.80}: expected one of {known}")
