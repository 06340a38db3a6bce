"""Calling code of a plugin; its errors, described, and the place in its files for its author.

Beside the supervisor of modules this is the only place that catches whatever is raised: properties,
policies and executors of users are called through `attempt`, too.
"""

from __future__ import annotations

import inspect
import reprlib
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from pathlib import Path
from types import CodeType, CoroutineType
from typing import Any, Final

import trio

from flux_trio.jobtap.values import Reject, readable
from flux_trio.process.groups import holds, without


class NoAnswer(Exception):
    """An async handler exceeded its deadline."""


def attempt(function: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """Call code of a plugin; return what it returned, and what it raised."""
    try:
        return function(*args), None
    except BaseException as error:
        if is_interrupt(error):
            raise
        return None, error


async def attempt_async(running: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Await an async function of a plugin; return what it returned, and its `failure_in`."""
    try:
        return await running, None
    except BaseException as raised:  # noqa: BLE001 - a plugin must not end the instance
        return None, failure_in(raised)


def is_interrupt(error: BaseException) -> bool:
    """Return whether `error` is the user's ctrl-C, which ends the whole run.

    Where flux_trio takes SIGINT itself, as `flux-trio start` does, ctrl-C raises nothing: there the
    plugin has raised KeyboardInterrupt.
    """
    if not holds(error, KeyboardInterrupt):
        return False
    handler = signal.getsignal(signal.SIGINT)
    return not str(getattr(handler, "__module__", "")).startswith("flux_trio.")


def is_awaitable(said: Any) -> bool:
    """Return whether a handler returned an awaitable: it is async and has only begun."""
    return type(said) is CoroutineType or hasattr(type(said), "__await__")


def failure_in(raised: BaseException) -> BaseException:
    """Return the error of an async function of a plugin, without a Cancelled in the same group.

    A mere Cancelled is raised again. A Cancelled of no surrounding scope is a failure: the plugin
    has kept it and raised it again.
    """
    failure = without(raised, trio.Cancelled)
    if failure is None:
        raise raised
    if isinstance(failure, trio.Cancelled) and trio.current_effective_deadline() == -inf:
        raise raised
    return failure


def refusal_in(error: BaseException | None) -> str | None:
    """Return the reason of a Reject; None for any other error."""
    return _reason_of(error) if isinstance(error, Reject) else None


def describe(error: BaseException) -> str:
    """Return one line about an error of a plugin."""
    text, another = attempt(_text_of, error)
    if another is not None:
        text = f"(its text cannot be told: {type(another).__name__})"
    return text if isinstance(error, NoAnswer) else readable(f"{type(error).__name__}: {text}")


def _text_of(error: BaseException) -> str:
    if isinstance(error, Reject) and _reason_of(error) is None:
        return f"expected a reason in words, got {reprlib.repr(_given_reason(error))}"
    if isinstance(error, BaseExceptionGroup):  # of a nursery: its own text names no cause
        return f"{error}: {'; '.join(map(describe, error.exceptions))}"
    return str(error)


def _reason_of(error: Reject) -> str | None:
    """Return the reason for a user; None if there is no text."""
    reason = _given_reason(error)
    return readable(reason) if isinstance(reason, str) and reason.strip() else None


def _given_reason(error: Reject) -> Any:
    return getattr(error, "reason", None)  # the plugin's own class may have left it out


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
