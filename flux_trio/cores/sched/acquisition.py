"""RFC 28 from the side of the one who acquires: one group, what it has, what was taken away.

A response that cannot be read, or that RFC 28 does not allow here, is met like an error response:
logged, and the scheduler leaves.
"""

from __future__ import annotations

from collections.abc import Callable

from flux_trio.cores.sched.context import Context
from flux_trio.cores.sched.requests import AcquireAnswer, GrowAnswer, TargetsAnswer
from flux_trio.editions import Edition
from flux_trio.formats import FormatError, Idset, ResourceSet
from flux_trio.messages import FluxError, Response, expect_payload, topics
from flux_trio.messages.types import STREAMING
from flux_trio.policies import Schedule
from flux_trio.protocols import ACQUIRE, AcquireEvent, AcquireType, InvalidTransition

GROUP = "default"  # RFC 28: all resources not assigned to any group

_EVENTS = {
    AcquireType.GROW: AcquireEvent.GROW,
    AcquireType.SHRINK: AcquireEvent.SHRINK,
    AcquireType.ONLINE: AcquireEvent.ONLINE,
    AcquireType.OFFLINE: AcquireEvent.OFFLINE,
}


class Acquisition:
    """The resource.acquire stream. `on_grow` is called after each grow, `on_shrink` before each
    shrink and `on_offline` before each offline, with the ranks that are about to go.
    """

    def __init__(
        self,
        context: Context,
        schedule: Schedule,
        on_grow: Callable[[], None],
        on_shrink: Callable[[int], None],
        on_offline: Callable[[int], None],
    ) -> None:
        self._context = context
        self._schedule = schedule
        self._on_grow = on_grow
        self._on_shrink = on_shrink
        self._on_offline = on_offline
        self._state = ACQUIRE.initial

    def start(self, edition: Edition) -> None:
        """Acquire the group."""
        self._state = ACQUIRE.step(self._state, AcquireEvent.ACQUIRE)
        payload = {"group": GROUP} if edition.acquire_names_a_group else None
        self._context.ask(topics.RESOURCE_ACQUIRE, payload, self._told, STREAMING)

    def release(self, ranks: int) -> None:
        """Nobody holds `ranks` any more, which were shrunk: say so (28.shrink.6)."""
        if not ranks:
            return
        last = not self._schedule.leaving
        event = AcquireEvent.RELEASE_LAST if last else AcquireEvent.RELEASE
        self._state = ACQUIRE.step(self._state, event)
        payload = {"group": GROUP, "targets": str(Idset.from_bits(ranks))}
        self._context.ask(topics.RESOURCE_RELEASE, payload, self._released)

    def _released(self, response: Response) -> None:
        if response.errnum:
            self._context.give_up(f"{response.topic}: {response.error_text}")

    def _told(self, response: Response) -> None:
        try:
            if response.errnum:
                raise FluxError(response.errnum, response.error_text)
            kind = expect_payload(response, AcquireAnswer).type
            self._state = ACQUIRE.step(self._state, _EVENTS[kind])
            if kind is AcquireType.GROW:
                self._grow(response)
            else:
                self._change(kind, _targets(response))
        except (FluxError, FormatError, InvalidTransition, ValueError) as error:
            self._context.give_up(f"{response.topic}: {error}")

    def _grow(self, response: Response) -> None:
        grown = expect_payload(response, GrowAnswer)
        resources = ResourceSet.parse(grown.resources, "resources")
        online = Idset.parse(grown.online)
        self._schedule.grow(resources, online.bits)
        self._on_grow()

    def _change(self, kind: AcquireType, ranks: int) -> None:
        match kind:
            case AcquireType.ONLINE:
                self._schedule.online(ranks)
            case AcquireType.OFFLINE:
                self._on_offline(ranks)
                self._schedule.offline(ranks)
            case AcquireType.SHRINK:
                self._on_shrink(ranks)


def _targets(response: Response) -> int:
    return Idset.parse(expect_payload(response, TargetsAnswer).targets).bits
