"""What the loaders of modules of flux-core have in common: how the broker starts them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import click


def run_loader(load: Callable[[str, str], Awaitable[int]], path: str | None) -> int:
    """Load the module at `path` on the socket that the broker has given to this process.

    Returns what `load` does. Raises ClickException with its error, or if somebody else than a
    broker has started this.
    """
    import trio

    from flux_trio.editions.rfc05 import MODULE_URI
    from flux_trio.messages import FluxError, RemoteProtocolError
    from flux_trio.process.groups import unwrapping
    from flux_trio.transports import TransportError

    uri = os.environ.pop(MODULE_URI, "")  # it is not for the processes that the module starts
    if not uri or path is None:
        raise click.ClickException(
            f"expected a PATH, and a socket in {MODULE_URI}: it is for `flux module load --loader`"
        )
    kinds = (TransportError, FluxError, RemoteProtocolError)
    try:
        with unwrapping(*kinds):
            return trio.run(load, uri, path)
    except kinds as error:
        raise click.ClickException(str(error)) from None
