"""What the commands share that serve a live flux-core."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from flux_trio.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from flux_trio.attach.handle import Service

TO: Final = click.option(
    "--to", metavar="URI", help="The broker: local://PATH. [default: what FLUX_URI says]"
)


def serve_until_signal(to: str | None, name: str, service: Service) -> None:
    """Serve until SIGTERM or ctrl-C. Raises CommandError for any other end."""
    import trio

    from flux_trio.attach.handle import flux_uri, serve
    from flux_trio.broker import ServiceExit
    from flux_trio.messages import FluxError
    from flux_trio.transports import ConnectionRefused, TransportError

    uri = flux_uri(to, os.environ)
    try:
        trio.run(serve, uri, name, service)
    except ConnectionRefused as error:
        raise CommandError(str(error)) from None
    except TransportError as error:
        raise CommandError(f"{uri}: the broker is gone: {error}") from None
    except (FluxError, ServiceExit) as error:
        raise CommandError(str(error)) from None
