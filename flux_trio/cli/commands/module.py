"""`flux-trio module`."""

from __future__ import annotations

from typing import Final

import click

from flux_trio.cli.session import with_client

_LIST_FORMAT: Final = "{name:<25} {waiting:>5} {services}"
_HEADINGS: Final = {"name": "Module", "waiting": "Recvq", "services": "Service"}


@click.group()
def module() -> None:
    """Manage the services of a running instance."""


@module.command("list")
def list_modules() -> None:
    """List the loaded modules, what waits for each, and the service names they hold.

    Exit codes: 0, 1 if there is no answer, 2 for wrong usage.
    """
    from flux_trio.cli.columns import Layout
    from flux_trio.messages import topics

    loaded = with_client(lambda client: client.call(topics.MODULE_LIST))["modules"]
    rows = [{**each, "services": ",".join(each["services"])} for each in loaded]
    for line in Layout(_LIST_FORMAT, _HEADINGS).lines(rows):
        click.echo(line)


@module.command()
@click.argument("name")
def load(name: str) -> None:
    """Start a module, and wait until it serves.

    Exit codes: 0, 1 if it is not known, loaded already or does not start, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_LOAD, name)


@module.command()
@click.argument("name")
def reload(name: str) -> None:
    """Stop a module and start it again.

    Exit codes: 0, 1 if it is not loaded or does not start, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_RELOAD, name)


@module.command()
@click.argument("name")
def remove(name: str) -> None:
    """Stop a module, and wait until nothing of it is left.

    Exit codes: 0, 1 if it is not loaded, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _change(topics.MODULE_REMOVE, name)


def _change(topic: str, name: str) -> None:
    with_client(lambda client: client.call(topic, {"name": name}))
