"""`flux-trio update`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flux_trio.cli.errors import CommandError
from flux_trio.cli.params import JOBID
from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.client import Client

NAMES = {"duration": "attributes.system.duration"}  # short names, as flux-update(1) has them


@click.command()
@click.argument("jobid", type=JOBID)
@click.argument("updates", metavar="KEY=VALUE...", nargs=-1, required=True)
def update(jobid: int, updates: tuple[str, ...]) -> None:
    """Change a job: for now `duration=TIME`.

    TIME is a duration such as 30 or 1.5h, or with + or - in front a change of the one it has. The
    duration of a running job is the owner's to change, and the scheduler must agree.

    Exit codes: 0 if it was changed, 1 if not, 2 for wrong usage.
    """
    with_client(lambda client: _update(client, jobid, dict(map(_split, updates))))


def _split(update: str) -> tuple[str, str]:
    key, equals, value = update.partition("=")
    if not equals:
        raise CommandError(f"{update}: expected KEY=VALUE, such as duration=1h")
    return key, value


async def _update(client: Client, jobid: int, updates: dict[str, str]) -> None:
    from flux_trio.messages import topics

    values: dict[str, object] = {}
    for name, text in updates.items():
        key = NAMES.get(name, name)
        is_duration = key == NAMES["duration"]
        values[key] = await _duration(client, jobid, text) if is_duration else text
    await client.call(topics.JOB_UPDATE, {"id": jobid, "updates": values})


async def _duration(client: Client, jobid: int, text: str) -> float:
    """The seconds that `text` means; a sign in front makes it a change of what the job has."""
    from flux_trio.formats import parse_duration
    from flux_trio.messages import topics

    if text[:1] not in ("+", "-"):
        return parse_duration(text)
    change = parse_duration(text[1:])
    job = (await client.call(topics.LIST_ID, {"id": jobid}))["job"]
    duration: float = job["duration"] + (change if text[0] == "+" else -change)
    if duration <= 0:
        raise CommandError(f"{text}: the duration would be {duration:g} s; expected more than 0")
    return duration
