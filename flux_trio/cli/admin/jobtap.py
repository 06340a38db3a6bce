"""`flux-trio jobtap`."""

from __future__ import annotations

from typing import Any, Final

import click

from flux_trio.cli.connection import completing
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, tell_abandoned
from flux_trio.cli.terminal.examples import Group

_MODE: Final = 0o644  # less the umask, of a plugin: one that others may write is not loaded
_NAME: Final = r"[a-z][a-z0-9]*([-_][a-z0-9]+)*"


@click.group(cls=Group)
def jobtap() -> None:
    """Manage the plugins of a running job manager, and create new ones."""


@jobtap.command()
@click.option(
    "-r",
    "--remove",
    metavar="GLOB",
    shell_complete=completing.loaded_plugin,
    help="First remove the plugins that match.",
)
@click.option(
    "--order",
    type=click.Choice(["none", "state", "-state"]),
    default="none",
    help="The order in which the plugin sees the jobs that are active already.",
)
@click.argument("plugin", shell_complete=completing.plugin)
@click.argument("conf", metavar="[KEY=VALUE]...", nargs=-1)
def load(plugin: str, conf: tuple[str, ...], remove: str | None, order: str) -> None:
    """Load a plugin by its name, or by the path of its file.

    A name is looked up among the entry points flux_trio.jobtap, in the directories of
    FLUX_TRIO_JOBTAP_PATH, in the directory jobtap of the state directory, and among the plugins
    that come with flux-trio. VALUE is JSON, or else text.

    Exit codes: 0, 1 if the plugin cannot be loaded, 2 for wrong usage.
    """
    from pathlib import Path

    from flux_trio.messages import topics

    if "/" in plugin or plugin.endswith(".py"):
        plugin = str(Path(plugin).resolve())
    payload: dict[str, Any] = {"load": plugin, "conf": _conf(conf), "order": order}
    if remove is not None:
        payload["remove"] = remove
    tell_abandoned(with_client(lambda client: client.call(topics.JOB_JOBTAP, payload)))


@jobtap.command()
@click.argument("plugin", metavar="GLOB", shell_complete=completing.loaded_plugin)
def remove(plugin: str) -> None:
    """Remove the plugins that match GLOB; `all` matches every plugin that is not builtin.

    The name of a builtin plugin begins with a period; only a GLOB that begins with a period
    matches it. A task of a plugin that goes on 5 seconds after it was cancelled is abandoned, and
    named on standard error.

    Exit codes: 0, 1 if no plugin matches, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    tell_abandoned(with_client(lambda client: client.call(topics.JOB_JOBTAP, {"remove": plugin})))


@jobtap.command("list")
@click.option("-a", "--all", "builtins", is_flag=True, help="Also list builtin plugins.")
def list_plugins(builtins: bool) -> None:
    """List the loaded plugins in the order in which they are called.

    Exit codes: 0, 1 if the instance does not answer, 2 for wrong usage.
    """
    from flux_trio.formats import printable
    from flux_trio.messages import topics

    listed = with_client(lambda client: client.call(topics.JOB_JOBTAP_LIST, {"all": builtins}))
    for name in listed["plugins"]:
        click.echo(printable(name))


@jobtap.command()
@click.argument("plugin", shell_complete=completing.loaded_plugin)
def query(plugin: str) -> None:
    """Print the data of a plugin, as JSON.

    The output also has the plugin's name, path and counters, and for each hook the number of its
    calls, their total time and their longest time, in seconds.

    Exit codes: 0, 1 if the plugin is not loaded or does not answer, 2 for wrong usage.
    """
    import json

    from flux_trio.messages import topics

    answer = with_client(lambda client: client.call(topics.JOB_JOBTAP_QUERY, {"name": plugin}))
    click.echo(json.dumps(answer, indent=2))


@jobtap.command()
@click.option("-d", "--dir", "directory", type=click.Path(), default=".", help="Write to DIR.")
@click.argument("name")
def new(name: str, directory: str) -> None:
    """Write a working plugin and a passing test of it: NAME.py and test_NAME.py.

    Exit codes: 0, 1 if one of the files exists, 2 for wrong usage.
    """
    import re
    from pathlib import Path

    from flux_trio.cli.admin.plugin_skeleton import skeleton

    if not re.fullmatch(_NAME, name):
        raise CommandError(f"expected a name of small letters, digits and hyphens, got {name!r}")
    files = {Path(directory) / each: text for each, text in skeleton(name).items()}
    for path in files:
        if path.exists():
            raise CommandError(f"{path} exists")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(_MODE)
        path.write_text(text)
        click.echo(str(path))


def _conf(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Read KEY=VALUE words. Raises CommandError for another word."""
    from flux_trio.cli.terminal.values import read_json_or_text

    conf: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise CommandError(f"expected KEY=VALUE, got {pair!r}")
        try:
            conf[key] = read_json_or_text(key, text)
        except ValueError as error:
            raise CommandError(str(error)) from None
    return conf
