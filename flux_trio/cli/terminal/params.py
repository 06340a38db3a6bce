"""Options that several commands have: click types that this project's parsers read, --color."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from flux_trio.cli.terminal.errors import CommandError

F = TypeVar("F", bound=Callable[..., Any])


class Parsed(click.ParamType[Any]):
    """A value that `parse` reads; its ValueError becomes a CommandError, not a usage error."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Any],
        offer: Callable[[str], list[tuple[str, str]]] | None = None,
    ) -> None:
        self.name = name
        self._parse = parse
        self._offer = offer

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,  # noqa: ARG002 - click's signature
    ) -> Any:
        """Return the value. The CommandError names the option or argument."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            raise CommandError(f"{_label(param)}{error}") from None

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return completions: values and their descriptions."""
        offered = self._offer(incomplete) if self._offer else []
        return [CompletionItem(value, help=what) for value, what in offered]


class Policy(click.ParamType[str]):
    """A scheduling policy: its name, or FILE.py:Class, whose file is run and has its whole path."""

    name = "policy"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name that `[sched]` has for it. A usage error says what is wrong."""
        from flux_trio.config import POLICIES_EXPECTED, POLICY_NAMES, is_policy_of_file

        if value in POLICY_NAMES:
            return value
        if not is_policy_of_file(value):
            self.fail(f"expected {POLICIES_EXPECTED}: got {value!r}", param, ctx)

        from flux_trio.jobtap import PluginError
        from flux_trio.services.policy_files import load_policy

        file, _, cls = value.rpartition(":")
        name = f"{Path(file).resolve()}:{cls}"
        try:
            load_policy(name)
        except PluginError as error:
            self.fail(str(error), param, ctx)
        return name

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Offer our policies, and otherwise files."""
        from flux_trio.config import POLICY_NAMES

        names = [CompletionItem(name) for name in POLICY_NAMES if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


POLICY: Final = Policy()


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


DURATION: Final = Parsed("duration", _duration)
USER: Final = Parsed("user", _of_values("read_user"))
USER_OR_ALL: Final = Parsed("user|all", _of_values("read_user_or_all"))
URGENCY: Final = Parsed("urgency", _of_values("read_urgency"))
STATES: Final = Parsed("states", _of_values("read_states"))
SIGNAL: Final = Parsed("signal", _of_values("read_signal"))

EDITION_OPTION: Final = click.option(
    "--edition",
    type=click.Choice(["classic", "current"]),
    default="classic",
    show_default=True,
    help="current leaves out the clauses that the current edition of the RFCs has changed.",
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
