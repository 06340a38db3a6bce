"""Values between plugins and the instance as plain JSON: copied and checked, or read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn

import msgspec
from msgspec import structs

from flux_trio.formats import Jobspec, shortened
from flux_trio.jobtap.errors import NotAllowed
from flux_trio.messages import UnfitError, check_object

BYTES_MAX: Final = 2**18  # of JSON: a jobspec with all of an environment is 100 kB
ANSWER_BYTES_MAX: Final = 2**23  # of a plugin's request or answer: half of the largest message
LEVELS_MAX: Final = 32  # of maps and arrays: a message adds some around them
STACK_CHARS_MAX: Final = 20_000  # of a stack in the log
TEXT_CHARS_MAX: Final = 2000  # of an error of a plugin


def plain(value: Mapping[str, Any], what: str, bytes_max: int = BYTES_MAX) -> dict[str, Any]:
    """Return a copy of `value` through JSON. Raises NotAllowed if JSON cannot represent it."""
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
