"""Events of eventlogs as text (flux-job(1), eventlog and wait-event)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import click
import msgspec

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.shown_values import HumanTimes, local_time
from flux_trio.formats import Event, parse_event, printable, printable_json

FORMS: Final = ("text", "json")
TIMES: Final = ("raw", "iso", "offset", "human")


def event_text(line: str) -> str:
    """Return an event as `timestamp name key=value ...`, values as JSON. Raises FormatError."""
    return EventTexts().text(line)


@dataclass
class EventTexts:
    """Formats the events of one eventlog, in one of FORMS, with times in one of TIMES.

    `raw` is seconds since the Unix epoch, `iso` local time, `offset` seconds since the first event,
    `human` the local minute, then seconds since the previous event.
    """

    form: str = "text"
    times: str = "raw"
    color: bool = False
    _first: float | None = None
    _human: HumanTimes = field(default_factory=lambda: HumanTimes(delta=True))

    def text(self, line: str) -> str:
        """Return the text of the next line of the eventlog. Raises FormatError."""
        if self.form == "json":
            return printable_json(line)
        event = parse_event(line)
        if self._first is None:
            self._first = event.timestamp
        context = [
            f" {self._style(printable(key), fg='cyan')}={json_text(value)}"
            for key, value in (event.context or {}).items()
        ]
        time = self._style(self._time(event.timestamp), fg="green")
        name = self._style(
            printable(event.name), fg="red" if event.name == "exception" else "yellow"
        )
        return f"{time} {name}{''.join(context)}"

    def _time(self, timestamp: float) -> str:
        match self.times:
            case "iso":
                return local_time(timestamp).isoformat(timespec="microseconds")
            case "offset":
                return f"{timestamp - (self._first or 0.0):.6f}"
            case "human":
                return self._human.text(timestamp)
            case _:
                return f"{timestamp:.6f}"

    def _style(self, text: str, **how: Any) -> str:
        return click.style(text, **how) if self.color else text


def read_match(text: str) -> tuple[str, str]:
    """Return key and value of KEY=VALUE. Raises ValueError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError("must specify a context test as key=value")
    return key, value


def matches(event: Event, name: str, match: tuple[str, str] | None) -> bool:
    """Whether the event has this name and, with `match`, this value (as JSON or plain)."""
    if event.name != name:
        return False
    if match is None:
        return True
    key, wanted = match
    context = event.context or {}
    return key in context and wanted in (json_text(context[key]), context[key])


def log_path(name: str) -> str:
    """Return the path of an eventlog below its job; `exec`, `output`, `input` are short forms.

    Raises CommandError for what is no path.
    """
    if not all(name.split(".")):
        raise CommandError(f"--path: expected names such as guest.exec.eventlog, got {name!r}")
    return f"guest.{name}" + (".eventlog" if name == "exec" else "") if name in _SHORT else name


_SHORT: Final = ("exec", "output", "input")


def json_text(value: Any) -> str:
    """Return a value as JSON without control characters."""
    return printable_json(msgspec.json.encode(value).decode())
