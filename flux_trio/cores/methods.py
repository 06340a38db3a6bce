"""The methods of a service: which function takes a request, and who may send it. Pure.

Every service answers `<service>.stats-get` to everybody: how many requests came, for each of its
topics, and what the service itself counts. `<service>.stats-clear` of the owner begins to count
requests anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import msgspec

from flux_trio.config import Config, read_config
from flux_trio.cores.state import Part
from flux_trio.editions import flux
from flux_trio.editions.codec import as_payload
from flux_trio.formats import FormatError
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    check_owner,
    respond,
    respond_error,
    service_of,
    topics,
    unknown_method,
)

Method: TypeAlias = Callable[[Request], None]
Stats: TypeAlias = Callable[[], msgspec.Struct]


class Methods(Part):
    """Functions by topic: some for the instance owner only, the others for everybody.

    A function may answer later. A FluxError or FormatError that it raises becomes the answer.
    `stats` is the stats-get topic and the function that returns what the service counts.
    `farewells` has the function that takes the disconnect of a peer, for each service name; before
    it is called, `forget` drops the answers to that peer in this turn (6.disconnect.2).
    """

    counts: dict[str, int]

    def __init__(
        self,
        for_owner: Mapping[str, Method],
        for_all: Mapping[str, Method],
        stats: tuple[str, Stats],
        farewells: Mapping[str, Method],
        forget: Callable[[str], None],
    ) -> None:
        self._forget = forget
        self._by_topic: dict[str, tuple[Method, bool]] = {
            **{topic: (method, True) for topic, method in for_owner.items()},
            **{topic: (method, False) for topic, method in for_all.items()},
            **{
                topics.disconnect_of(service): (partial(self._leaves, method), False)
                for service, method in farewells.items()
            },
        }  # whether it is for the owner alone
        self._stats_topic, self._stats = stats
        self._clear_topic = topics.stats_clear_of(service_of(self._stats_topic))
        self.counts = dict.fromkeys([*self._by_topic, self._stats_topic, self._clear_topic], 0)

    def call(self, request: Request) -> Response | None:
        """Call the function for `request`; return an error or the counts, else None."""
        topic = request.topic
        try:
            found = self._by_topic.get(topic)
            if found is None:
                return self._count(request)
            self.counts[topic] += 1
            method, is_for_owner = found
            if is_for_owner:
                check_owner(request)
            method(request)
        except FluxError as error:
            return respond_error(request, error.errnum, error.text)
        except FormatError as error:
            return respond_error(request, Errno.EPROTO, f"{request.topic}: {error}")
        return None

    def _leaves(self, method: Method, request: Request) -> None:
        self._forget(request.sender)
        method(request)

    def _count(self, request: Request) -> Response | None:
        """Answer a stats-get or stats-clear request. Raises FluxError for any other."""
        if request.topic == self._clear_topic:
            check_owner(request)
            self.counts = dict.fromkeys(self.counts, 0)
            return respond(request)
        if request.topic != self._stats_topic:
            service = service_of(request.topic)
            raise unknown_method(service, request.topic.removeprefix(f"{service}."))
        self.counts[request.topic] += 1
        counts = flux.RequestCounts(dict(self.counts))
        return respond(request, as_payload(counts) | as_payload(self._stats()))


def configuration_in(request: Request) -> Config:
    """Return the new configuration. FluxError(EINVAL) names the field that cannot be read."""
    try:
        return read_config(flux.CONFIG_RELOAD.read(request).config)
    except FormatError as error:
        raise FluxError(Errno.EINVAL, str(error)) from None
