"""RFC 28 from the side of the one who acquires: one group, what it has, what was taken away.

A response that cannot be read, or that RFC 28 does not allow here, is met like an error response:
logged, and the scheduler leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from flux_trio.cores.sched.context import Acquired, Context, Released
from flux_trio.cores.sched.requests import AcquireAnswer, GrowAnswer, TargetsAnswer
from flux_trio.cores.state import Part
from flux_trio.editions import Edition
from flux_trio.formats import FormatError, Idset, ResourceSet
from flux_trio.messages import FluxError, Response, expect_payload, topics
from flux_trio.messages.types import STREAMING
from flux_trio.protocols import ACQUIRE, AcquireEvent, AcquireState, AcquireType, InvalidTransition

GROUP = "default"  # RFC 28: all resources not assigned to any group

_EVENTS = {
    AcquireType.GROW: AcquireEvent.GROW,
    AcquireType.SHRINK: AcquireEvent.SHRINK,
    AcquireType.ONLINE: AcquireEvent.ONLINE,
    AcquireType.OFFLINE: AcquireEvent.OFFLINE,
}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what there is: `ranks`, a bit set, are concerned. A grow is done already."""

    kind: AcquireType
    ranks: int


class Acquisition(Part):
    """The resource.acquire stream."""

    _state: AcquireState

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state = ACQUIRE.initial

    def start(self, edition: Edition) -> None:
        """Acquire the group."""
        self._state = ACQUIRE.step(self._state, AcquireEvent.ACQUIRE)
        payload = {"group": GROUP} if edition.acquire_names_a_group else None
        self._context.ask(topics.RESOURCE_ACQUIRE, payload, Acquired(), int(STREAMING))

    def release(self, ranks: int) -> None:
        """Nobody holds `ranks` any more, which were shrunk: say so (28.shrink.6)."""
        if not ranks:
            return
        last = not self._context.schedule.leaving
        event = AcquireEvent.RELEASE_LAST if last else AcquireEvent.RELEASE
        self._state = ACQUIRE.step(self._state, event)
        payload = {"group": GROUP, "targets": str(Idset.from_bits(ranks))}
        self._context.ask(topics.RESOURCE_RELEASE, payload, Released())

    def released(self, response: Response) -> None:
        """A release was answered, which only an error matters of."""
        if response.errnum:
            self._context.give_up(f"{response.topic}: {response.error_text}")

    def heard(self, response: Response) -> Change | None:
        """What a response of the stream says; None when the scheduler leaves because of it."""
        try:
            if response.errnum:
                raise FluxError(response.errnum, response.error_text)
            kind = expect_payload(response, AcquireAnswer).type
            self._state = ACQUIRE.step(self._state, _EVENTS[kind])
            if kind is not AcquireType.GROW:
                return Change(kind, _targets(response))
            grown = expect_payload(response, GrowAnswer)
            resources = ResourceSet.parse(grown.resources, "resources")
            self._context.schedule.grow(resources, Idset.parse(grown.online).bits)
            return Change(kind, resources.ranks.bits)
        except (FluxError, FormatError, InvalidTransition, ValueError) as error:
            self._context.give_up(f"{response.topic}: {error}")
            return None


def _targets(response: Response) -> int:
    return Idset.parse(expect_payload(response, TargetsAnswer).targets).bits
