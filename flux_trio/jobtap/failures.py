"""Calling code of a plugin, and describing its errors."""

from __future__ import annotations

import reprlib
import signal
from collections.abc import Callable
from math import inf
from types import CoroutineType
from typing import Any

import trio

from flux_trio.jobtap.catalogue import Hook
from flux_trio.jobtap.errors import Reject
from flux_trio.jobtap.plain import readable
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


def refusal_in(error: BaseException | None, hook: Hook) -> str | None:
    """Return the reason of a Reject if `hook` can be refused; None for any other error."""
    return _reason_of(error) if isinstance(error, Reject) and hook.rejects else None


def describe(error: BaseException) -> str:
    """Return one line about an error of a plugin."""
    try:
        text = str(error)
        if isinstance(error, Reject) and _reason_of(error) is None:
            text = f"expected a reason in words, got {reprlib.repr(_given_reason(error))}"
    except BaseException as another:
        if is_interrupt(another):
            raise
        text = f"(its text cannot be told: {type(another).__name__})"
    return text if isinstance(error, NoAnswer) else readable(f"{type(error).__name__}: {text}")


def _reason_of(error: Reject) -> str | None:
    """Return the reason for a user; None if there is no text."""
    reason = _given_reason(error)
    return readable(reason) if isinstance(reason, str) and reason.strip() else None


def _given_reason(error: Reject) -> Any:
    return getattr(error, "reason", None)  # the plugin's own class may have left it out
