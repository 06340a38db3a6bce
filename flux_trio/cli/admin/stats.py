"""`flux-trio stats`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Command
from flux_trio.process.groups import unwrapping

if TYPE_CHECKING:
    from types import ModuleType

ANSWER_S_MAX: Final = 5.0  # of the instance; a scrape may take twice as long
PORT_MAX: Final = 65535


@click.command(cls=Command)
@click.option("--prometheus", is_flag=True, help="Print metrics in the text format of Prometheus.")
@click.option(
    "--serve",
    "port",
    type=click.IntRange(0, PORT_MAX),
    metavar="PORT",
    help="Serve them by HTTP at this port of the loopback address, until SIGINT or SIGTERM; port 0 "
    "is any that is free.",
)
def stats(*, prometheus: bool, port: int | None) -> None:
    """Print the statistics of all services of an instance, as JSON or as metrics.

    Metrics need the extra `metrics`: pip install "flux-trio[metrics]". With --serve the instance
    is asked at a scrape, at most once a second, and `flux_trio_up` is 0 while it does not answer.
    Every user of the machine may read them there; they name no job and no user.

    Exit codes: 0, 1 if the instance does not answer or the port is taken, 2 for wrong usage.
    """
    if port is not None:
        _serve(port)
    elif prometheus:
        collector = _metrics().InstanceCollector
        from prometheus_client import CollectorRegistry, generate_latest

        gathered = _gathered()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector(lambda: gathered))
        click.echo(generate_latest(registry), nl=False)
    else:
        import json

        click.echo(json.dumps(_gathered(), indent=2))


def _metrics() -> ModuleType:
    try:
        from flux_trio.cli.admin import metrics
    except ModuleNotFoundError as error:
        text = 'metrics need the package prometheus-client: pip install "flux-trio[metrics]"'
        raise CommandError(text) from error
    return metrics


def _gathered() -> dict[str, Any]:
    from flux_trio.cli.admin.statistics import gather

    return with_client(gather)


def _serve(port: int) -> None:
    import signal
    from functools import partial

    import anyio

    metrics = _metrics()
    from flux_trio.cli.admin.metrics_server import MetricsServer
    from flux_trio.cli.admin.statistics import gather
    from flux_trio.cli.connection.loopback import HOST
    from flux_trio.client import ClientError, find_instance, open_client
    from flux_trio.messages import FluxError

    async def ask() -> dict[str, Any] | None:
        try:
            with anyio.fail_after(ANSWER_S_MAX):
                async with open_client(*find_instance(os.environ)) as client:
                    return await gather(client)
        except (ClientError, FluxError, OSError):  # among them that it has not answered in time
            return None

    async def serve() -> None:
        server = MetricsServer(ask, metrics.InstanceCollector)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with anyio.create_task_group() as tasks:
                await tasks.start(partial(server.serve, port))
                click.echo(f"metrics are at http://{HOST}:{server.port}/metrics")
                sys.stdout.flush()
                async for _ in signals:
                    tasks.cancel_scope.cancel()

    try:
        with unwrapping(OSError):
            anyio.run(serve, backend="asyncio")
    except OSError as error:
        raise CommandError(f"cannot listen at {HOST}:{port}: {error.strerror}") from None
