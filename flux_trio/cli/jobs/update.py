"""`flux-trio update`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.shown_values import shown_id

if TYPE_CHECKING:
    from flux_trio.client import Client

_ALIASES: Final = {"name": "attributes.system.job.name"}
_SECTIONS: Final = ("attributes.", "resources.", "tasks.")


@click.command(context_settings={"ignore_unknown_options": True}, cls=Command)
@click.option(
    "-n", "--dry-run", is_flag=True, help="Print the updates as JSON without sending them."
)
@click.option("-v", "--verbose", is_flag=True, help="Print the updated keys.")
@click.option(
    "--wait",
    is_flag=True,
    expose_value=False,
    help="Wait until the update is in the job's eventlog; this is always on.",
)
@click.argument("jobid", type=JOBID)
@click.argument("updates", metavar="KEY=VALUE...", nargs=-1, required=True)
def update(dry_run: bool, verbose: bool, jobid: int, updates: tuple[str, ...]) -> None:
    """Change attributes of a pending or running job: duration=TIME, queue=NAME, name=NAME...

    A key is below attributes.system unless it begins with attributes., resources. or tasks. A value
    is JSON, or else text. TIME is a duration such as 30 or 1.5h; with + or - in front, it changes
    the current duration by that much. The plugins of the instance decide which keys may be
    changed, and by whom. Only the owner may change the duration of a running job, and the scheduler
    must agree.

    Exit codes: 0 if all updates were made, 1 if no update was made, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    given = dict(map(_split, updates))

    async def send(client: Client) -> dict[str, Any]:
        values = {key: await _value(client, jobid, key, text) for key, text in given.items()}
        if not dry_run:
            await client.call(topics.JOB_UPDATE, {"id": jobid, "updates": values})
        return values

    values = with_client(send)
    if dry_run:
        import msgspec

        click.echo(msgspec.json.encode(values))
    elif verbose:
        for key, value in values.items():
            remark(f"updated {key} to {value}")


def _split(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"{text}: expected KEY=VALUE, such as duration=1h")
    key = _ALIASES.get(key, key)
    return key if key.startswith(_SECTIONS) else f"attributes.system.{key}", value


async def _value(client: Client, jobid: int, key: str, text: str) -> Any:
    from flux_trio.cli.terminal.values import read_json_or_text
    from flux_trio.config import DURATION_KEY

    if key == DURATION_KEY:
        return await _duration(client, jobid, text)
    return read_json_or_text(key, text)


async def _duration(client: Client, jobid: int, text: str) -> float:
    """Return the new duration in seconds, 0 for no limit; a sign makes `text` relative."""
    from flux_trio.cli.terminal.columns import short_duration
    from flux_trio.formats import parse_duration
    from flux_trio.messages import topics

    if text[:1] not in ("+", "-"):
        seconds = parse_duration(text)
        return 0.0 if math.isinf(seconds) else seconds
    change = parse_duration(text[1:])
    job = (await client.call(topics.LIST_ID, {"id": jobid}))["job"]
    before: float = job["duration"]
    name = shown_id(jobid)
    if not before:
        raise CommandError(f"duration for {name} is unlimited, can't update by {text}")
    after = before + (change if text[0] == "+" else -change)
    if after <= 0:
        has = short_duration(before)
        raise CommandError(f"current duration for {name} ({has}) cannot be reduced by {text[1:]}")
    return after
