"""Values of options and arguments that are read by this project's own parsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from flux_trio.cli.errors import CommandError


class Parsed(click.ParamType[Any]):
    """What `parse` makes of the text; its ValueError is the command's error, not wrong usage."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,  # noqa: ARG002 - click's signature
    ) -> Any:
        """The value; CommandError that names the option or argument."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            raise CommandError(f"{_label(param)}{error}") from None


def _label(param: click.Parameter | None) -> str:
    match param:
        case click.Option():
            return f"{max(param.opts, key=len)}: "
        case click.Argument():
            return f"{param.make_metavar(click.Context(click.Command(''))).strip('[].')}: "
        case _:
            return ""


def _jobid(text: str) -> int:
    from flux_trio.formats import parse_fluid

    return parse_fluid(text)


def _duration(text: str) -> float:
    from flux_trio.formats import parse_duration

    return parse_duration(text)


def _time_limit(text: str) -> float:
    """Minutes when there is no unit, as `flux submit` has it; in seconds."""
    from flux_trio.formats import parse_duration

    seconds = parse_duration(text)
    return seconds * 60 if text[-1:].isdigit() or text.endswith(".") else seconds


def _begin_time(text: str) -> float:
    """Seconds since the Unix epoch; a `+` counts from now, by this machine's clock."""
    import time

    from flux_trio.cli.begin_time import parse_begin_time

    return parse_begin_time(text, time.time())


def _user(text: str) -> int:
    """A user's id by name or number; the instance knows only numbers."""
    import pwd

    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        if text.isascii() and text.isdigit():
            return int(text)
    raise ValueError(f"there is no user {text!r}")


def _user_or_all(text: str) -> int:
    from flux_trio.messages import USERID_UNKNOWN

    return USERID_UNKNOWN if text == "all" else _user(text)


def _urgency(text: str) -> int:
    from flux_trio.protocols import (
        URGENCY_DEFAULT,
        URGENCY_EXPEDITE,
        URGENCY_HOLD,
        URGENCY_MAX,
        URGENCY_MIN,
    )

    names = {"default": URGENCY_DEFAULT, "hold": URGENCY_HOLD, "expedite": URGENCY_EXPEDITE}
    if text in names:
        return names[text]
    if text.isascii() and text.isdigit() and URGENCY_MIN <= int(text) <= URGENCY_MAX:
        return int(text)
    known = ", ".join(names)
    raise ValueError(f"expected {URGENCY_MIN} to {URGENCY_MAX}, {known}; got {text!r}")


JOBID: Final = Parsed("jobid", _jobid)
DURATION: Final = Parsed("duration", _duration)
TIME_LIMIT: Final = Parsed("minutes|duration", _time_limit)
BEGIN_TIME: Final = Parsed("+duration|time", _begin_time)
USER: Final = Parsed("user", _user)
USER_OR_ALL: Final = Parsed("user|all", _user_or_all)
URGENCY: Final = Parsed("urgency", _urgency)
