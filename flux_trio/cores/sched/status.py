"""What others ask about the resources: feasibility.check (RFC 27), and what is down and allocated.

A feasibility.check that comes before the resources are known waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flux_trio.cores.sched.context import Context
from flux_trio.cores.sched.requests import shape_of
from flux_trio.cores.state import Part
from flux_trio.editions import flux
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error

EARLY_MAX: Final = 1000
"""Checks that wait for the first resources; a further one gets EAGAIN."""


class Status(Part):
    """Answers from the pool, without a change to it."""

    _early: list[Request]

    def __init__(self, context: Context) -> None:
        self._context = context
        self._early = []

    def check(self, request: Request) -> None:
        """Answer whether a jobspec can ever be satisfied: empty, or EOVERFLOW and why not."""
        if self._context.schedule.state.pool.inventory is not None:
            self._check(request)
        elif len(self._early) < EARLY_MAX:
            self._early.append(request)
        else:
            raise FluxError(Errno.EAGAIN, "the resources are not known yet")

    def _check(self, request: Request) -> None:
        codec = self._context.edition.feasibility
        assert codec is not None  # otherwise nobody is asked
        jobspec = codec.read(request).jobspec
        try:
            shortfall = self._context.schedule.shortfall(shape_of(jobspec))
        except ValueError as error:  # FormatError is one
            raise FluxError(Errno.EINVAL, f"invalid jobspec: {error}") from None
        if shortfall is not None:
            raise FluxError(Errno.EOVERFLOW, shortfall)
        self._context.send(respond(request))

    def check_early(self) -> None:
        """Answer the checks that have waited for the resources."""
        early, self._early = self._early, []
        for request in early:
            try:
                self._check(request)
            except FluxError as error:
                self._context.send(respond_error(request, error.errnum, error.text))

    def disconnect(self, request: Request) -> None:
        """Drop the checks that wait of who has gone (6.disconnect.2)."""
        self._early = [each for each in self._early if each.sender != request.sender]

    def tell(self, request: Request) -> None:
        """Answer sched.resource-status."""
        pool = self._context.schedule.state.pool
        inventory = pool.inventory
        found = flux.SchedResources(flux.EMPTY_R, flux.EMPTY_R, flux.EMPTY_R)
        if inventory is not None:
            free = pool.free_allocation().resource_set(pool.hosts, {}, 0.0, 0.0)
            down = inventory.without_ranks(Idset.from_bits(pool.up))
            found = flux.SchedResources(*map(_json, (inventory, down, inventory.difference(free))))
        self._context.send(respond(request, flux.SCHED_RESOURCES.write(found)))


def _json(resources: ResourceSet) -> Mapping[str, Any]:
    return resources.to_json() if resources else flux.EMPTY_R
