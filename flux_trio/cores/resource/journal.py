"""What Flux's own programs read about resources: the journal, and what the scheduler has. Pure.

- `resource.journal` is a stream of the events of `resource.eventlog`: those of earlier runs, then
  `restart`, `resource-define` with R and `online`, which tell of the start of this run and are not
  stored, then those of this run. An empty list of events marks where the live ones begin.
- `resource.sched-status` tells all resources, those that are down or drained, and those that jobs
  hold, as the job manager knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.cores.kvs_calls import value_in
from flux_trio.cores.state import Part
from flux_trio.cores.streams import Credit, Stream, StreamKey, Streams
from flux_trio.editions import flux
from flux_trio.editions.common import canceled
from flux_trio.editions.journal import event_object
from flux_trio.formats import Event, Hostlist, Idset, ResourceSet, parse_eventlog
from flux_trio.formats.meanings import Stamp
from flux_trio.messages import FluxError, Request, Response, respond, respond_error, respond_stream

RESTART: Final = "restart"
DEFINE: Final = "resource-define"
ONLINE: Final = "online"


class JournalStream(Stream):
    """One reader; `is_live` once it has what is stored."""

    is_live: bool = False


class Journal(Part):
    """The readers; `began` is when this run began (seconds since the Unix epoch)."""

    _streams: Streams[JournalStream]
    began: Stamp

    def __init__(self) -> None:
        self._streams = Streams()
        self.began = 0.0

    def open(self, request: Request) -> StreamKey:
        """Take a reader, whose stored events are to be read. Raises FluxError."""
        self._streams.check_new(request)
        stream = JournalStream(request, Credit())
        self._streams.add(stream)
        return stream.stream

    def read(self, key: StreamKey, response: Response, inventory: ResourceSet) -> list[Response]:
        """Return what a reader gets first; [] if it has gone. FormatError if nobody can read it."""
        stream = self._streams.get(key)
        if stream is None:
            return []
        try:
            events = parse_eventlog(value_in(response) or "")
        except FluxError as error:
            self._streams.remove(stream)
            refusal = respond_error(stream.request, error.errnum, error.text)
            return [] if refusal is None else [refusal]
        stream.is_live = True
        earlier = [each for each in events if each.timestamp < self.began]
        hosts = str(Hostlist.of(inventory.hosts.values()))
        ranks = str(inventory.ranks)
        restart = {"ranks": ranks, "online": "", "nodelist": hosts}
        pages = [
            _page([*earlier, Event(self.began, RESTART, restart)]),
            _page([Event(self.began, DEFINE, {"method": "configuration"})])
            | {"R": inventory.to_json()},
            _page([Event(self.began, ONLINE, {"idset": ranks}), *events[len(earlier) :]]),
            _page([]),
        ]
        return [
            answer for page in pages if (answer := respond_stream(stream.request, page)) is not None
        ]

    def told(self, event: Event) -> list[Response]:
        """Return the news of an event, for each reader."""
        page = _page([event])
        return [
            answer
            for each in self._streams.all_open()
            if each.is_live and (answer := respond_stream(each.request, page)) is not None
        ]

    def cancel(self, request: Request) -> list[Response | None]:
        """Return the end of one of the sender's streams, and the answer. Raises FluxError."""
        stream = self._streams.canceled(request)
        self._streams.remove(stream)
        return [canceled(stream.request, request), respond(request, {})]

    def forget(self, sender: str) -> None:
        """Forget the streams of a peer that is gone."""
        for each in self._streams.of_sender(sender):
            self._streams.remove(each)


def _page(events: list[Event]) -> dict[str, Any]:
    return {"events": [event_object(each) for each in events]}


def sched_status(
    inventory: ResourceSet, excluded: Idset, unavailable: Idset, held: Mapping[str, Any] | None
) -> flux.SchedResources:
    """Return the resources of the scheduler; those that jobs hold are as the job manager says.

    The job manager knows no properties, by which programs tell the queues of what is allocated.
    """
    known = inventory.without_ranks(excluded)
    down = known.restrict(unavailable)
    if held and known.properties:
        held = ResourceSet.parse(held).with_properties(known.properties, {}).to_json()
    return flux.SchedResources(_json(known), _json(down), held or flux.EMPTY_R)


def _json(resources: ResourceSet) -> Mapping[str, Any]:
    return resources.to_json() if resources else flux.EMPTY_R


class HeldRead(msgspec.Struct, frozen=True):
    """Answers what jobs hold, for the resource.sched-status requests that wait."""


class JournalRead(msgspec.Struct, frozen=True):
    """Answers the read of the stored events for a reader."""

    stream: StreamKey
