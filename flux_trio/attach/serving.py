"""Runs a service at a broker of flux-core until a signal ends it, or the broker leaves."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio

from flux_trio.attach.handle import open_flux
from flux_trio.broker import ServiceExit
from flux_trio.messages import FluxError
from flux_trio.process.groups import unwrapping
from flux_trio.transports import TransportError

Service = Callable[..., Awaitable[object]]
"""Serves with the handle that it gets, until cancelled."""


async def serve(uri: str, name: str, service: Service) -> None:
    """Run `service` at the broker at `uri` until SIGTERM or SIGINT.

    The broker then tells those who have talked to it that it is gone. Raises TransportError if the
    broker leaves or lets nobody in, FluxError and ServiceExit as the service does.
    """
    with (
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
        unwrapping(TransportError, FluxError, ServiceExit),
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, uri, name, service)
            async for _ in signals:
                nursery.cancel_scope.cancel()
                break


async def _serve(uri: str, name: str, service: Service) -> None:
    async with open_flux(uri, name) as flux:
        await service(flux)
