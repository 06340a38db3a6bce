"""Whether to write colours: --color, NO_COLOR, and whether standard output is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
