"""The place of code in the files of a plugin: for errors that its author reads."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Any, Final

_HOST: Final = Path(__file__).parent  # its builtin plugins are in a directory below


def place_of(
    function: Callable[..., Any], error: BaseException | None = None, files: Iterable[str] = ()
) -> str:
    """Return " (file:line)": where code of a plugin has raised `error`; "" if it is not known.

    The line is the last one in `files`, those of the plugin, or else outside the host. If the
    plugin has not raised, it is the first line of `function`.
    """
    own = code_of(function)
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)
    theirs = [each for each in frames if not _is_host(each.filename)]
    named = {*files, own.co_filename if own else ""}
    met = [each for each in theirs if each.filename in named] or theirs
    if met:
        return f" ({met[-1].filename}:{met[-1].lineno})"
    if own is None or _is_host(own.co_filename):
        return ""
    return f" ({own.co_filename}:{own.co_firstlineno})"


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """Return the code of a function or method; None for another callable."""
    found = getattr(inspect.unwrap(function), "__code__", None)
    return found if isinstance(found, CodeType) else None


def _is_host(filename: str) -> bool:
    return Path(filename).parent == _HOST
