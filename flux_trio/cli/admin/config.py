"""`flux-trio config`: print and replace the configuration of a running instance."""

from __future__ import annotations

import math
from typing import Any, Final

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Group

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "real": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_FSD: Final = ("fsd", "fsd-integer", "fsd-real")


@click.group(cls=Group)
def config() -> None:
    """Print the configuration, and change it while the instance runs."""


@config.command()
@click.option("-d", "--default", metavar="VALUE", help="Print VALUE if the key is not set.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if the key is not set.")
@click.option(
    "-t",
    "--type",
    "kind",
    type=click.Choice([*_TYPES, *_FSD]),
    help="The type that the value must have; an fsd is a duration such as 1.5h.",
)
@click.argument("name", required=False)
@click.pass_context
def get(
    ctx: click.Context, *, default: str | None, quiet: bool, kind: str | None, name: str | None
) -> None:
    """Print the value of NAME, a key such as `policy.limits.duration`, or the whole configuration.

    Text is printed as it is, any other value as JSON.

    Exit codes: 0, 1 if the key is not set or its value has another type, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    whole = with_client(lambda client: client.call(topics.CONFIG_GET, {"defaults": True}))["config"]
    try:
        value = _find(whole, name)
    except KeyError:
        if default is None and quiet:
            ctx.exit(1)
        if default is None:
            raise CommandError(f"{name} is not set") from None
        value = default
    click.echo(_text_of(value if kind is None else _typed(value, kind, name or "configuration")))


@config.command()
@click.argument("file", default="-")
def load(file: str) -> None:
    """Replace the configuration by FILE, which is TOML or JSON; without FILE, by standard input.

    If one part of the instance refuses the new configuration, nothing changes.

    Exit codes: 0 if it is in force, 1 if it was refused, 2 for wrong usage.
    """
    from flux_trio.cli.terminal.config_file import read_config_file
    from flux_trio.messages import topics

    payload = {"config": read_config_file(file).to_json()}
    _say_later(with_client(lambda client: client.call(topics.CONFIG_LOAD, payload)))


@config.command()
def reload() -> None:
    """Read the configuration file of the instance again.

    If one part of the instance refuses the new configuration, nothing changes.

    Exit codes: 0 if it is in force, 1 if it was refused, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _say_later(with_client(lambda client: client.call(topics.CONFIG_RELOAD)))


# --- helpers


def _find(value: Any, name: str | None) -> Any:
    """Return the value at a dotted path. Raises KeyError if it is not there."""
    for key in name.split(".") if name else ():
        if not isinstance(value, dict):
            raise KeyError(key)
        value = value[key]
    return value


def _typed(value: Any, kind: str, name: str) -> Any:
    """Return the value in the form to print. Raises CommandError if it has another type."""
    if kind in _TYPES:
        of_kind = isinstance(value, _TYPES[kind])
        if not of_kind or (isinstance(value, bool) and kind != "boolean"):
            raise CommandError(f"{name}: expected {kind}, got {_text_of(value)}")
        return value
    from flux_trio.formats import parse_duration

    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from None
    if kind == "fsd":
        return value
    return int(seconds) if kind == "fsd-integer" and seconds < math.inf else seconds


def _text_of(value: Any) -> str:
    import msgspec

    if isinstance(value, str):
        return value
    return "inf" if value == math.inf else msgspec.json.encode(value).decode()


def _say_later(answer: dict[str, Any]) -> None:
    if "refusal" in answer:
        raise CommandError(answer["refusal"])
    if answer["later"]:
        remark(f"in force when their modules are loaded again: {', '.join(answer['later'])}")
