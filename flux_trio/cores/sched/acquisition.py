"""RFC 28 from the scheduler's side: it acquires one group and releases nodes that are shrunk.

    resource.acquire  → grow, at once; the hello to the job manager follows the first one
                      → shrink: grants that are not sent are revoked; jobs on the targets get a
                        fatal exception, if the edition says so
                      → online, offline: whether the targets may get new jobs
    resource.release  → nothing; for each shrunk target, once no job is on it (not in current)

The scheduler logs an error response and ends. It does the same for a response that it cannot read,
that RFC 28 does not allow at this point, or that has no streaming flag: then it is the last one
(RFC 6), and the scheduler would learn of no change any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from flux_trio.cores.sched.context import Acquired, Context, Released
from flux_trio.cores.state import Part
from flux_trio.editions.rfc28 import (
    DEFAULT_GROUP,
    Acquire,
    Change,
    Expires,
    Grown,
    Offline,
    Online,
    PropertiesChanged,
    Release,
    Shrunk,
)
from flux_trio.formats import FormatError, Idset
from flux_trio.messages import Errno, FluxError, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.protocols import AcquireEvent, AcquireState, GroupStream, InvalidTransition

_EVENTS: dict[type[Change], AcquireEvent] = {
    Grown: AcquireEvent.GROW,
    Expires: AcquireEvent.GROW,  # in the classic edition it is a grow
    Shrunk: AcquireEvent.SHRINK,
    Online: AcquireEvent.ONLINE,
    Offline: AcquireEvent.OFFLINE,
    PropertiesChanged: AcquireEvent.ONLINE,  # which RFC 28 allows at the same times
}


class Acquisition(Part):
    """The resource.acquire stream."""

    _stream: GroupStream

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stream = GroupStream()

    def start(self) -> None:
        self._stream.step(AcquireEvent.ACQUIRE, DEFAULT_GROUP)
        payload = self._context.edition.acquire.write(Acquire(DEFAULT_GROUP))
        self._context.ask(topics.RESOURCE_ACQUIRE, payload, Acquired(), int(STREAMING))

    def release(self, ranks: int) -> None:
        """Release `ranks`, which were shrunk and which no job holds any more (28.shrink.6)."""
        if not ranks or self._stream.state is AcquireState.IDLE:
            return  # after an error response the group is not acquired
        last = not self._context.schedule.leaving
        event = AcquireEvent.RELEASE_LAST if last else AcquireEvent.RELEASE
        self._stream.step(event, DEFAULT_GROUP)
        if (codec := self._context.edition.release) is not None:
            payload = codec.write(Release(DEFAULT_GROUP, Idset.from_bits(ranks)))
            self._context.ask(topics.RESOURCE_RELEASE, payload, Released())

    def released(self, response: Response) -> None:
        """Take the answer to a release: an error ends the scheduler."""
        if response.errnum:
            self._context.give_up(f"{response.topic}: {response.error_text}")

    def changes_in(self, response: Response) -> Sequence[Change]:
        """Return the changes in a response; empty if the scheduler ends because of it."""
        try:
            if response.errnum:
                self._stream.step(AcquireEvent.ERROR, DEFAULT_GROUP)
                raise FluxError(response.errnum, response.error_text)
            if response.ends_rpc:
                self._stream.step(AcquireEvent.ERROR, DEFAULT_GROUP)
                raise FluxError(
                    Errno.EPROTO, "a response without the streaming flag ends the stream"
                )
            changes = self._context.edition.changes.read(response)
            for change in changes:
                self._stream.step(_EVENTS[type(change)], DEFAULT_GROUP)
                if isinstance(change, Grown):
                    self._context.schedule.grow(change.resources, change.online.bits)
            return changes
        except (FluxError, FormatError, InvalidTransition, ValueError) as error:
            self._context.give_up(f"{response.topic}: {error}")
            return []
