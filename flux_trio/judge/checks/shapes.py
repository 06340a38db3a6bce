"""Rules of the form "message M has key K of type T": one line each.

A missing required key, or one of another shape, breaks the clause of that key and no other; a
payload that is no object at all breaks the clause that asks for an object.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from flux_trio.formats import FormatError, Idset
from flux_trio.judge.engine.rule import Broken, Debts, Rules
from flux_trio.judge.engine.selector import errnum, message, received, sent
from flux_trio.judge.engine.view import Seen, Selector, View
from flux_trio.messages import Event, Request, Response
from flux_trio.trace import Record


class Shape(NamedTuple):
    """What a value has to look like: in words, and as a function that tests it."""

    words: str
    fits: Callable[[Any], bool]


def part(value: Any, key: str, type_: type) -> Any:
    """Return the value of an object's key; an empty one if it is missing or of another type."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, type_) else type_()


def members(value: Any) -> list[dict[str, Any]]:
    """Return the objects in an array; [] if `value` is no array."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def arrays(value: Any, length: int) -> list[Any]:
    """Return the arrays of a length in an array; [] if `value` is no array."""
    found = value if isinstance(value, list) else []
    return [each for each in found if isinstance(each, (list, tuple)) and len(each) == length]


def is_integer(value: Any) -> bool:
    """Whether a value is a JSON integer; true and false are not."""
    return type(value) is int


def between(low: int, high: int) -> Shape:
    """Return the shape of an integer in a range, both ends included."""
    words = f"an integer from {low} to {high}"
    return Shape(words, lambda value: is_integer(value) and low <= value <= high)


def one_of(*values: Any) -> Shape:
    words = "one of " + ", ".join(repr(value) for value in values)
    return Shape(words, lambda value: value in values)


def list_of(shape: Shape) -> Shape:
    """Return the shape of an array whose elements have a shape."""
    words = f"an array whose elements are each {shape.words}"
    return Shape(words, lambda value: isinstance(value, list) and all(map(shape.fits, value)))


def idset_of(value: Any) -> Idset | None:
    """Return the idset of a string; None for any other value."""
    return _parsed(value) if isinstance(value, str) else None


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Idset | None:
    try:
        return Idset.parse(text)
    except FormatError:
        return None


def _is_idset(value: Any) -> bool:
    return idset_of(value) is not None


ANYTHING: Final = Shape("any value", lambda _value: True)
INTEGER: Final = Shape("an integer", is_integer)
NUMBER: Final = Shape("a number", lambda value: type(value) in (int, float))
STRING: Final = Shape("a string", lambda value: isinstance(value, str))
BOOLEAN: Final = Shape("true or false", lambda value: isinstance(value, bool))
OBJECT: Final = Shape("an object", lambda value: isinstance(value, dict))
ARRAY: Final = Shape("an array", lambda value: isinstance(value, list))
IDSET: Final = Shape("an idset (RFC 22)", _is_idset)
JOB_ID: Final = between(0, 2**64 - 1)  # readings: Job ids
USERID: Final = between(0, 2**32 - 1)
PRIORITY: Final = between(0, 4294967295)


def key_problem(found: dict[str, Any], key: str, shape: Shape, *, required: bool = True) -> str:
    """Return what is wrong with the value of a key; "" if nothing is."""
    if key in found:
        fits = shape.fits(found[key])
        return "" if fits else f"{key}: expected {shape.words}, got {found[key]!r:.80}"
    return f"expected key {key}, {shape.words}; it is missing" if required else ""


Objects: TypeAlias = Callable[[Record, Seen], Iterable[tuple[str, dict[str, Any]]]]
"""Returns the objects in a record that must have the key, each with words that say which object it
is."""

_WITH_PAYLOAD: Final = frozenset({Request, Response, Event})


def object_payload(record: Record, _seen: Seen) -> list[tuple[str, dict[str, Any]]]:
    """Return the payload object of a request, an event or a successful response."""
    found: Any = record.message
    kind: Any = type(found)  # isinstance of a Struct costs several times as much
    if kind not in _WITH_PAYLOAD or (kind is Response and found.errnum):
        return []
    return [(_name_of(found.topic, kind), found.payload)] if isinstance(found.payload, dict) else []


@functools.lru_cache(maxsize=256)
def _name_of(topic: str, type_: type) -> str:
    return f"{topic} {type_.__name__.lower()}"


def require_object(
    rules: Rules,
    clause: str,
    *selectors: Iterable[Selector],
    views: Iterable[View] = (),
    debts: Debts | None = None,
) -> None:
    """Register `clause`: the payload of each selected message that is no error is a JSON object.

    `debts` says, of `views`, which of these messages are missing at rest.
    """

    @rules.judge(clause, *selectors, views=views, debts=debts)
    def judge(record: Record, _seen: Seen) -> Broken | bool | None:
        found = message(record)
        if not isinstance(found, (Request, Response, Event)) or errnum(record):
            return None
        if isinstance(found.payload, dict):
            return True
        return Broken(f"{found.topic}: expected an object as payload, got {found.payload!r:.80}")


def require_key(
    rules: Rules,
    clause: str,
    *selectors: Iterable[Selector],
    key: str,
    shape: Shape = ANYTHING,
    subjects: Objects = object_payload,
    when: Callable[[dict[str, Any]], bool] | None = None,
    required: bool = True,
) -> None:
    """Register `clause`: each object has `key`, whose value has the `shape`; one that is not
    `required` may be left out.

    `when` says of an object whether the clause is about it.
    """

    @rules.each(clause, *selectors, of=subjects)
    def judge(subject: tuple[str, dict[str, Any]]) -> Broken | bool | None:
        what, found = subject
        if (not required and key not in found) or (when is not None and not when(found)):
            return None
        problem = key_problem(found, key, shape)
        return Broken(f"{what}: {problem}") if problem else True


def require_silence(rules: Rules, clause: str, topic: str, expected: str) -> None:
    """Register `clause`: the scheduler receives such a request and does not answer it.

    The broker answers for a scheduler that is gone, which is allowed.
    """

    @rules.judge(clause, received("request", topic), sent("response", topic))
    def judge(record: Record, seen: Seen) -> Broken | bool | None:
        if isinstance(record.message, Request):
            return True
        if record.party != seen.facts.scheduler:
            return None
        return Broken(f"{topic}: a response to it; expected {expected}")
