"""What goes between handlers and the instance: arguments, answers and errors.

What a plugin returns or hands over is checked, and copied as plain JSON; what it gets to see is
read-only.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import msgspec
from msgspec import structs

from flux_trio.formats import Jobspec, shortened
from flux_trio.messages import UnfitError, check_object
from flux_trio.protocols import PRIORITY_MAX, PRIORITY_MIN, Unavailable


class Reject(Exception):
    """Raised by a handler to refuse. `reason` is one sentence, shown to the user word for word.

    Without a reason it is a failure of the handler.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotAllowed(Exception):
    """An operation that the job's state does not allow; the text names the rule."""


class HandlerFailed(Exception):
    """A handler returned a value that its hook does not allow, or was late; the text says where."""


class PluginError(Exception):
    """A plugin that cannot be loaded, found or removed; the text names the rule."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One entry of a jobspec's dependencies (RFC 26), in its object form."""

    scheme: str
    value: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """The other keys; a value that looks like a number is a number."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Dependency:
        """Read the object of a jobspec."""
        rest = {key: value for key, value in entry.items() if key not in ("scheme", "value")}
        return cls(entry["scheme"], entry.get("value", ""), rest)


@dataclass(frozen=True, slots=True)
class UpdateAllowed:
    """Returned by a job.update.KEY handler: the key may be updated.

    With `validated`, job.validate is not asked about the updated jobspec; with `feasible`, the
    scheduler need not check it. `updates` are further values, by jobspec key, to update as well.
    """

    validated: bool = False
    feasible: bool = False
    updates: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request to a method of a plugin's service; raise FluxError to refuse it."""

    method: str
    payload: dict[str, Any]
    userid: int
    is_owner: bool


def shown(said: Any) -> Any:
    """Return the trace's form of a checked value."""
    if isinstance(said, int):
        return said
    if isinstance(said, Unavailable):
        return repr(said)
    if isinstance(said, UpdateAllowed):
        return {"allowed": dict(said.updates)}
    return None  # a value of the plugin's own, which may be large


def priority_of(value: Any) -> int | None:
    """Return the priority, None for UNAVAILABLE. Raises NotAllowed for another value."""
    if not is_priority(value):
        raise NotAllowed(expected_text(PRIORITIES, value))
    return value if isinstance(value, int) else None


def is_priority(value: Any) -> bool:
    """Return whether a handler may return `value` as a priority; a boolean is not allowed."""
    if type(value) is int:
        return PRIORITY_MIN <= value <= PRIORITY_MAX
    return isinstance(value, Unavailable)


PRIORITIES = f"a priority from {PRIORITY_MIN} to {PRIORITY_MAX} or UNAVAILABLE"


def priorities_in(said: Any, count: int) -> list[int | Unavailable | None]:
    """Return what a handler says about `count` jobs. Raises NotAllowed for anything else."""
    if type(said) is not list or len(said) != count:
        raise NotAllowed(expected_text(f"a list of {count} answers, one for each job", said))
    for each in said:
        if each is not None and not is_priority(each):
            raise NotAllowed(expected_text(PRIORITIES, each))
    return said


def expected_text(what: str, got: Any) -> str:
    return f"expected {what}, got {reprlib.repr(got)}"


BYTES_MAX: Final = 2**18  # of JSON: a jobspec with all of an environment is 100 kB
ANSWER_BYTES_MAX: Final = 2**23  # of a plugin's request or answer: half of the largest message
LEVELS_MAX: Final = 32  # of maps and arrays: a message adds some around them
STACK_CHARS_MAX: Final = 20_000  # of a stack in the log
TEXT_CHARS_MAX: Final = 2000  # of an error of a plugin


def plain(value: Mapping[str, Any], what: str, bytes_max: int = BYTES_MAX) -> dict[str, Any]:
    """Return a copy of `value` through JSON. Raises NotAllowed if it is no JSON object."""
    if not isinstance(value, Mapping):
        raise NotAllowed(f"{what}: {expected_text('a JSON object', value)}")
    given = dict(value)
    try:
        check_object(given)
        text = msgspec.json.encode(given)
    except (UnfitError, TypeError, ValueError) as error:
        raise NotAllowed(f"{what}: expected a JSON object: {error}") from None
    if len(text) > bytes_max:
        raise NotAllowed(f"{what}: expected at most {bytes_max} bytes of JSON, got {len(text)}")
    if _levels(given) > LEVELS_MAX:
        raise NotAllowed(f"{what}: expected at most {LEVELS_MAX} levels of maps and arrays")
    copied: dict[str, Any] = msgspec.json.decode(text)
    return copied


def readable(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return `text` without lone surrogates and shortened, so that it can be logged and sent."""
    return shortened(text, chars_max).encode(errors="backslashreplace").decode()


def _refuse(*_args: Any, **_values: Any) -> NoReturn:
    raise NotAllowed(
        "a job's jobspec is changed with job.update({...}); job.raw_jobspec is a copy to edit"
    )


class ReadOnly(dict[str, Any]):
    """A JSON object that several plugins read. Every copy of it may be edited."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        """Return what `copy`, `deepcopy` and `pickle` make in its place."""
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A JSON array that several plugins read. Every copy of it may be edited."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)


def read_only(jobspec: Jobspec) -> Jobspec:
    """Return the jobspec with objects and arrays that cannot be changed."""
    resources = jobspec.resources
    slots = {
        label: slot._replace(counts=ReadOnly(slot.counts))
        for label, slot in resources.slots.items()
    }
    tasks = [structs.replace(task, count=_read_only(task.count)) for task in jobspec.tasks]
    return replace(
        jobspec,
        json=_read_only(jobspec.json),
        resources=structs.replace(
            resources, totals=ReadOnly(resources.totals), slots=ReadOnly(slots)
        ),
        tasks=tuple(tasks),
    )


def _read_only(value: Any) -> Any:
    if isinstance(value, dict):
        return ReadOnly({key: _read_only(each) for key, each in value.items()})
    return ReadOnlyList(map(_read_only, value)) if isinstance(value, list) else value


def _levels(value: Any) -> int:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return 0
    return 1 + max(map(_levels, value), default=0)
