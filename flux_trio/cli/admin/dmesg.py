"""`flux-trio dmesg`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import color_option
from flux_trio.cli.terminal.shown_values import HumanTimes, local_time

if TYPE_CHECKING:
    from flux_trio.client import Client

_WORST_COLORED: Final = 3  # an error (RFC 5424)
_WARNING: Final = 4


@click.command(cls=Command)
@click.option("-C", "--clear", is_flag=True, help="Clear the log without printing it.")
@click.option("-c", "--read-clear", is_flag=True, help="Print the log, then clear it.")
@click.option("-f", "--follow", is_flag=True, help="Then wait for new lines and print them.")
@click.option("-n", "--new", is_flag=True, help="Print new lines only.")
@click.option(
    "-H", "--human", is_flag=True, help="Print the local minute, then seconds since then."
)
@click.option("-d", "--delta", is_flag=True, help="With -H, print seconds since the previous line.")
@color_option("-L")
def dmesg(
    *, clear: bool, read_clear: bool, follow: bool, new: bool, human: bool, delta: bool, color: bool
) -> None:
    """Print the last lines of the instance's log: time, module, level and text.

    Exit codes: 0, 1 if you are not the owner, 2 for wrong usage.
    """
    lines = _Lines(HumanTimes(delta) if human else None, color)

    async def show(client: Client) -> None:
        from flux_trio.messages import topics

        wanted = {"follow": follow or new, "nobacklog": new, "entries": True}
        if not clear:
            cancel = topics.LOG_DMESG_CANCEL
            async with client.stream(topics.LOG_DMESG, wanted, cancel_topic=cancel) as entries:
                async for entry in entries:
                    click.echo(lines.line(entry), color=color)
        if clear or read_clear:
            await client.call(topics.LOG_CLEAR)

    with_client(show)


@dataclass
class _Lines:
    """Formats entries of the log as lines; `human` are their times, if they are for people."""

    human: HumanTimes | None
    color: bool

    def line(self, entry: dict[str, Any]) -> str:
        from flux_trio.formats import printable
        from flux_trio.messages import Level

        level = Level(entry["level"]).name.lower()
        time = self._style(self._time(entry["timestamp"]), fg="green")
        who = self._style(f"{printable(entry['party'])}.{level}", fg="yellow")
        text = printable(entry["text"])
        if entry["level"] <= _WORST_COLORED:
            text = self._style(text, fg="red")
        elif entry["level"] == _WARNING:
            text = self._style(text, bold=True)
        return f"{time} {who}: {text}"

    def _time(self, timestamp: float) -> str:
        if self.human is not None:
            return self.human.text(timestamp)
        return local_time(timestamp).astimezone().isoformat(timespec="microseconds")

    def _style(self, text: str, **how: Any) -> str:
        return click.style(text, **how) if self.color else text
