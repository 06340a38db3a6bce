"""Options that several commands have: click types that this project's parsers read, --color."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from flux_trio.cli.terminal.errors import CommandError

F = TypeVar("F", bound=Callable[..., Any])
Offer: TypeAlias = Callable[[str], list[CompletionItem]]


def no_offer(_incomplete: str) -> list[CompletionItem]:
    """Offer nothing for a word that is being typed."""
    return []


class Parsed(click.ParamType[Any]):
    """A value that `parse` reads, and that `offer` completes.

    A ValueError of `parse` becomes a CommandError; its click.BadParameter stays a usage error.
    """

    def __init__(self, name: str, parse: Callable[[str], Any], offer: Offer = no_offer) -> None:
        self.name = name
        self.parse = parse
        self.offer = offer

    def convert(self, value: Any, param: click.Parameter | None, _ctx: click.Context | None) -> Any:
        """Return the value. The CommandError names the option or argument."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            raise CommandError(f"{_label(param)}{error}") from None

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return self.offer(incomplete)


def _label(param: click.Parameter | None) -> str:
    match param:
        case click.Option():
            return f"{max(param.opts, key=len)}: "
        case click.Argument():
            return f"{param.make_metavar(click.Context(click.Command(''))).strip('[].')}: "
        case _:
            return ""


# A parser is imported when there is a value to read: `--help` must be quick.


def _duration(text: str) -> float:
    from flux_trio.formats import parse_duration

    return parse_duration(text)


def _of_values(name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        from flux_trio.cli.terminal import values

        return getattr(values, name)(text)

    return read


def _policy(text: str) -> str:
    """Return the name that `[sched]` has for a policy; the file of FILE.py:Class is run."""
    from flux_trio.config import POLICY_NAMES, check_policy_name
    from flux_trio.jobtap import PluginError
    from flux_trio.services.policy_files import load_policy

    try:
        check_policy_name(text, "")
        if text in POLICY_NAMES:
            return text
        file, _, cls = text.rpartition(":")
        name = f"{Path(file).resolve()}:{cls}"
        load_policy(name)
    except (ValueError, PluginError) as error:
        raise click.BadParameter(str(error)) from None
    return name


def _offer_policies(incomplete: str) -> list[CompletionItem]:
    """Offer our policies, and otherwise files."""
    from flux_trio.config import POLICY_NAMES

    names = [CompletionItem(name) for name in POLICY_NAMES if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


POLICY: Final = Parsed("policy", _policy, _offer_policies)
DURATION: Final = Parsed("duration", _duration)
USER: Final = Parsed("user", _of_values("read_user"))
USER_OR_ALL: Final = Parsed("user|all", _of_values("read_user_or_all"))
URGENCY: Final = Parsed("urgency", _of_values("read_urgency"))
STATES: Final = Parsed("states", _of_values("read_states"))
SIGNAL: Final = Parsed("signal", _of_values("read_signal"))


def spoken_edition(what: str) -> Callable[[F], F]:
    """Return the option --edition of a command that starts an instance, which speaks it."""
    return click.option(
        "--edition",
        type=click.Choice(["classic", "current"]),
        help=f"Speak this edition of the RFCs{what}.  [default: classic]",
    )


EDITION_OPTION: Final = click.option(
    "--edition",
    type=click.Choice(["classic", "current"]),
    help="Judge by this edition of the RFCs.  [default: what the instance of the trace speaks, or "
    "classic if the trace does not say it]",
)


STRICT_OPTION: Final = click.option(
    "--strict", is_flag=True, help="End with 1 for what is only recommended, too."
)


def count_option(does: str) -> Callable[[F], F]:
    """Return the option --count of a command that `does` something with jobs."""
    return click.option(
        "-c",
        "--count",
        type=click.IntRange(min=0),
        default=1000,
        show_default=True,
        metavar="N",
        help=f"{does} at most N jobs; 0 means all.",
    )


UNBUFFERED: Final = click.option(
    "-u",
    "--unbuffered",
    is_flag=True,
    expose_value=False,
    help="Accepted for flux; nothing is ever buffered.",
)
LABEL_IO: Final = click.option(
    "-l", "--label-io", is_flag=True, help="Put the task in front of each line of output."
)
NO_HEADER: Final = click.option("-n", "--no-header", is_flag=True, help="Print no header.")


def format_option(fields: str) -> Callable[[F], F]:
    """Return the option --format of a command that prints a table; `fields` says of what."""
    return click.option(
        "-o",
        "--format",
        "layout",
        metavar="NAME|FORMAT",
        help=f"A Python format string with {fields}, or the name of a format; help lists the "
        "names.",
    )


def color_option(*names: str) -> Callable[[F], F]:
    """Return the option --color=WHEN with more names; its value is True if colours are written."""
    return click.option(
        "color",
        *names,
        "--color",
        type=click.Choice(["always", "never", "auto"]),
        default="auto",
        callback=lambda _ctx, _param, when: _decide(when),
        metavar="WHEN",
        help="Write colours: always, never, or auto (only on a terminal).",
    )


def _decide(when: str) -> bool:
    if when == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return when == "always"
