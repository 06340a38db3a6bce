"""Decorators that say what a function of a plugin is for; they do not change the function.

They are for methods of a `Plugin` and for functions of a module that is a plugin. Their arguments
are checked when the plugin is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from flux_trio.protocols import JobState

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any]

MARKS: Final = "__jobtap_marks__"  # attribute of a decorated function


class OnMark(msgspec.Struct, frozen=True):
    """Handles the topics that match one of `topics`."""

    topics: tuple[str, ...]


class ManyMark(msgspec.Struct, frozen=True):
    """Answers one of `topics` for many jobs at once."""

    topics: tuple[str, ...]


class StateMark(msgspec.Struct, frozen=True):
    """Is called when a job comes into one of `states`; with `leaving`, when it leaves one."""

    states: tuple[JobState, ...]
    leaving: bool


class ServiceMark(msgspec.Struct, frozen=True):
    """Answers job-manager.PLUGIN.`method`."""

    method: str
    owner_only: bool


Mark = OnMark | ManyMark | StateMark | ServiceMark


def on(*topics: str) -> Callable[[F], F]:
    """Handle these topics: topics of the hook reference, globs of them, or topics of your own.

    The function may be async. Its parameters are the topic's.
    """
    _expect(str, topics, '@on("job.new")')
    return _marking(OnMark(topics))


def on_many(*topics: str) -> Callable[[F], F]:
    """Answer a topic for many jobs in one call; only job.priority.get allows this.

    The function takes the list of jobs and returns a list with the answer for each, in order; it
    may not be async. The plugin also needs a handler `on` the topic, which is called for one job.
    If the call fails, all of its jobs keep their priorities. Operations in it are performed later,
    after the answers.
    """
    _expect(str, topics, '@on_many("job.priority.get")')
    return _marking(ManyMark(topics))


def enter(*states: JobState) -> Callable[[F], F]:
    """Call a plain function with each job that comes into one of `states`.

    On load it is called for the jobs that are in one of them already. Counters have counted the job
    before the call.
    """
    _expect(JobState, states, "@enter(State.RUN)")
    return _marking(StateMark(states, leaving=False))


def leave(*states: JobState) -> Callable[[F], F]:
    """Call a plain function with each job that leaves one of `states`.

    It is called once for each time the job came in since the plugin was loaded, also when the
    plugin is removed. Counters have the amounts after the move.
    """
    _expect(JobState, states, "@leave(State.RUN)")
    return _marking(StateMark(states, leaving=True))


def service(method: str, *, owner_only: bool = True) -> Callable[[F], F]:
    """Answer the requests `job-manager.PLUGIN.METHOD`: takes a ServiceRequest, returns a dict.

    The function may be async. Guests are refused unless `owner_only` is off.
    """
    _expect(str, [method], '@service("reload")')
    return _marking(ServiceMark(method, owner_only))


def marks_of(function: Any) -> tuple[Mark, ...]:
    """Return the marks of a function, the outermost decorator first."""
    found: tuple[Mark, ...] = getattr(function, MARKS, ())
    return found


def _expect(kind: type, given: Iterable[Any], example: str) -> None:
    """Reject `@on` without parentheses: it would register nothing."""
    for each in given:
        if not isinstance(each, kind):
            raise TypeError(f"expected a decorator such as {example}, got {each!r}")


def _marking(mark: Mark) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        setattr(function, MARKS, (mark, *marks_of(function)))
        return function

    return decorate
