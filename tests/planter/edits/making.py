"""Edits: one for each role, message, field and operator that the recordings have, and made.

The message, or event, of a cell is drawn by a seed from all that are of it.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from flux_trio.formats import Idset
from tests.support.recorded import RecordingJson, numbers, recording

SEED: Final = 20261122

LOST, TWICE, EARLY, LATE, ELSEWHERE = "lost", "twice", "early", "late", "to another peer"
REFUSED, TAKEN = "refused", "not refused"
ABSENT, NULL, TYPED = "absent", "null", "wrong type"
OTHER, OTHER_JOB, STALE = "other value", "of another job", "stale"
ABOVE, BELOW, FIRST, LAST = "one more", "one less", "first lost", "last lost"
WHOLE: Final = (LOST, TWICE, EARLY, LATE, ELSEWHERE, REFUSED, TAKEN)
"""Operators on a message or event as a whole."""
ON_FIELDS: Final = (*(ABSENT, NULL, TYPED, OTHER, OTHER_JOB, STALE, ABOVE, BELOW, FIRST, LAST),)
"""Operators on one field of it."""
KINDS: Final = {
    LOST: "deleted",
    TWICE: "repeated",
    EARLY: "moved earlier",
    LATE: "moved later",
    ABSENT: "removed key",
    NULL: "other type",
    TYPED: "other type",
    **dict.fromkeys((OTHER, OTHER_JOB, STALE, ABOVE, BELOW, FIRST, LAST), "other value"),
    REFUSED: "other value",
    TAKEN: "other value",
    ELSEWHERE: ELSEWHERE,
}
"""By operator: the kind of edit that it is for the table of what edits break."""

OF_PROGRAMS: Final = "45"
"""In this recording a program that has no role calls the services, to see their errors."""

SPECIFIED: Final = re.compile(
    r"sched\.(alloc|free|cancel|prioritize|expiration)|resource\.acquire"
    r"|job-manager\.(sched-hello|sched-ready|exec-hello)|<exec>\.start|log (?!debug\.).*"
)
"""What RFC 20, 21, 27, 28 and 32 specify: the messages of these services, and events of jobs."""

Path: TypeAlias = tuple[str | int, ...]

ALLOC_TYPES: Final = ("SUCCESS", "ANNOTATE", "DENY", "CANCEL")
_SERVICES: Final = frozenset(("broker", "job-manager", "resource", "kvs"))
"""These send many messages about others."""
_EXEC: Final = re.compile(r"(job|test)-exec[a-z0-9-]*\.(start|shutdown|expiration)")
_MOMENT_S: Final = 1e-6


class Unit(NamedTuple):
    """A message, or an event of a job, by its place in a recording."""

    number: str
    job: int
    """The place of the job; -1 for a message."""
    place: int


class Edit(NamedTuple):
    """One change of a recording by an operator."""

    unit: Unit
    operator: str
    path: Path = ()

    @property
    def kinds(self) -> tuple[str, str]:
        """The operator, and the kind of edit that it is: the table may name either."""
        return (self.operator, KINDS[self.operator])

    @property
    def cell(self) -> tuple[str, str, str, str]:
        """Role, message or event, field and operator."""
        return (role_of(self.unit), self.subject, self.field, self.operator)

    @property
    def name(self) -> str:
        where = f"{self.unit.number} {'message' if self.unit.job < 0 else f'job {self.unit.job}'}"
        return f"{where} {self.unit.place} {self.subject}: {self.operator} {self.field}".rstrip()

    @property
    def subject(self) -> str:
        """What is edited, as the table names it."""
        return subject_of(_read(self.unit.number), self.unit)

    @property
    def field(self) -> str:
        """The path of the field, without places in arrays."""
        return ".".join(each if isinstance(each, str) else "[]" for each in self.path)


@functools.cache
def _read(number: str) -> RecordingJson:
    return recording(number)


def units() -> list[Unit]:
    """Every message and every event of all recordings."""
    found = []
    for number in numbers():
        told = _read(number)
        found += [Unit(number, -1, place) for place in range(len(told["messages"]))]
        for job, each in enumerate(told["jobs"]):
            found += [Unit(number, job, place) for place in range(len(each["eventlog"]))]
    return found


def in_recording(told: RecordingJson, unit: Unit) -> list[dict[str, Any]]:
    """The list that the unit is in."""
    found: list[dict[str, Any]] = (
        told["messages"] if unit.job < 0 else told["jobs"][unit.job]["eventlog"]
    )
    return found


def subject_of(told: RecordingJson, unit: Unit) -> str:
    """`request T`, `response T`, `error T`, `event T` or `log NAME`; some with a type."""
    found = in_recording(told, unit)[unit.place]
    if unit.job >= 0:
        return f"log {found['name']}"
    topic = _EXEC.sub(r"<exec>.\2", found["topic"])
    if found["type"] != "response":
        return f"{found['type']} {topic}"
    if found.get("errnum"):
        return f"error {topic}"
    type_ = found.get("payload", {}).get("type")
    if topic == "sched.alloc":
        type_ = ALLOC_TYPES[type_]
    return f"response {topic}" + (f":{type_}" if type_ is not None else "")


def role_of(unit: Unit) -> str:
    """The role of the party that sends a message, or logs an event."""
    if unit.job >= 0:
        return "job-manager"
    sender: str = _read(unit.number)["messages"][unit.place]["from"]
    subject = subject_of(_read(unit.number), unit)
    if sender in ("job-manager", "resource", "broker"):
        return sender
    return "exec" if "exec" in subject else "scheduler"


@functools.cache
def edits(seed: int = SEED) -> tuple[Edit, ...]:
    """One edit for each cell, of one of the messages and events of all recordings, drawn by `seed`.

    They come in an order that is drawn too, so that the first ones are a sample.
    """
    draw = random.Random(seed)
    all_units = units()
    draw.shuffle(all_units)
    found: dict[tuple[str, ...], Edit] = {}
    for unit in all_units:
        if unit.number == OF_PROGRAMS:
            continue
        subject = subject_of(_read(unit.number), unit)
        if SPECIFIED.fullmatch(subject.partition(" ")[2].partition(":")[0]) or unit.job >= 0:
            for edit in _edits_of(unit):
                found.setdefault(edit.cell, edit)
    drawn = [each for each in found.values() if "debug." not in each.subject]
    draw.shuffle(drawn)
    return tuple(drawn)


def _edits_of(unit: Unit) -> Iterator[Edit]:
    told = _read(unit.number)
    found = in_recording(told, unit)[unit.place]
    for operator in WHOLE:
        if _applies(told, unit, found, operator):
            yield Edit(unit, operator, ("errnum",) if operator in (REFUSED, TAKEN) else ())
    content = found.get("payload" if unit.job < 0 else "context")
    for path, value in _fields(content, ()):
        for operator in ON_FIELDS:
            if operator == ABSENT or _changed(operator, told, unit, path, value) is not None:
                yield Edit(unit, operator, path)


def _applies(told: RecordingJson, unit: Unit, found: dict[str, Any], operator: str) -> bool:
    is_message = unit.job < 0
    match operator:
        case "lost" | "late" if is_message and not unit.place:
            return False  # a recording begins at any moment: the next message may be its first
        case "lost" if found.get("type") == "response" and _leaves_next(told, unit.place):
            return False  # no answer is owed: to who leaves, or by who leaves
        case "twice" if found.get("type") == "request" and _leaves_next(told, unit.place):
            return False
        case "early" | "late":
            return _neighbor(told, unit, operator) is not None
        case "to another peer":
            return is_message and found["type"] == "response"
        case "refused":
            return is_message and found["type"] == "response" and not found.get("errnum")
        case "not refused":
            return is_message and bool(found.get("errnum"))
    return True


def _leaves_next(told: RecordingJson, place: int) -> bool:
    """Whether one end of a message leaves before it sends anything else."""
    ends = {told["messages"][place][end] for end in ("from", "to")} - _SERVICES
    for later in told["messages"][place + 1 :]:
        is_told_to = later["topic"].endswith(".shutdown") and later["to"] in ends
        if is_told_to or later["from"] in ends:
            return is_told_to or later["topic"].endswith(".disconnect")
    return False


def _fields(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every field below a value, and the first of each array; jobspecs and environments are not
    entered.
    """
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = list(enumerate(value))[:1]
    for key, each in items:
        yield (*path, key), each
        if key not in ("jobspec", "annotations"):
            yield from _fields(each, (*path, key))


# --- making them


def made(edit: Edit) -> RecordingJson:
    """The recording with the edit."""
    told = recording(edit.unit.number)
    place, found = edit.unit.place, in_recording(told, edit.unit)
    match edit.operator:
        case "lost":
            del found[place]
        case "twice":
            found.insert(place, dict(found[place]))
        case "early" | "late":
            _move(told, edit)
        case "to another peer":
            found[place]["to"] = "kvs"
        case "refused" | "not refused":
            _change_errnum(found[place])
        case _:
            _change(told, found[place], edit)
    return told


def _neighbor(told: RecordingJson, unit: Unit, kind: str) -> int | None:
    """The place of the message or event beside which the unit is moved.

    Of a message of RFC 27 or 32 about a job: the next one of that job in that direction. Of
    another: a request goes behind the next response of its topic, a response before the last
    request.
    """
    found = in_recording(told, unit)
    step = -1 if kind == EARLY else 1
    place = unit.place + step
    while 0 <= place < len(found):
        if _is_related(found[unit.place], found[place], kind):
            return place
        place += step
    return None


def _is_related(one: dict[str, Any], other: dict[str, Any], kind: str) -> bool:
    """Whether the move would change the order of two that belong together."""
    if "topic" not in one:
        names = frozenset((one["name"], other["name"]))
        is_free = names in _UNORDERED or any(map(_may_come_anywhere, (one, other)))
        return not is_free
    if _is_of_job(one):
        return _is_of_job(other) and bool(_ids(one) & _ids(other))
    is_of_both = {one["from"], one["to"]} == {other["from"], other["to"]}
    is_rpc = one["topic"] == other["topic"] and is_of_both and one["type"] != other["type"]
    return is_rpc and one["type"] == ("response" if kind == EARLY else "request")


_UNORDERED: Final = frozenset(
    frozenset(pair)
    for pair in (
        ("validate", "dependency-add"),
        ("validate", "dependency-remove"),
        ("alloc", "prolog-start"),
        ("prolog-finish", "epilog-start"),
        ("prolog-finish", "epilog-finish"),
        ("prolog-finish", "exception"),
        ("release", "epilog-start"),
    )
)
"""Events that may come in either order: a dependency may be added, and removed, in NEW and in
DEPEND; a prolog holds the start request, and an epilog the free, and nothing else; it may end right
before the exception that would have ended it.
"""


def _may_come_anywhere(event: dict[str, Any]) -> bool:
    """Whether an event changes no state, and nothing waits for it."""
    name: str = event["name"]
    is_exception = name == "exception"
    return name.startswith("debug.") or (is_exception and event["context"]["severity"] != 0)


def _is_of_job(message: dict[str, Any]) -> bool:
    topic: str = message["topic"]
    return (topic.startswith("sched.") and topic != "sched.expiration") or topic.endswith(".start")


def _ids(message: dict[str, Any]) -> set[Any]:
    payload = message.get("payload", {})
    return {payload["id"]} if "id" in payload else {each[0] for each in payload.get("jobs", ())}


def _move(told: RecordingJson, edit: Edit) -> None:
    """Put it right before the neighbor, or right after it, at its time."""
    found, unit = in_recording(told, edit.unit), edit.unit
    to = _neighbor(told, unit, edit.operator)
    assert to is not None
    moved, t = found[unit.place], found[to]["t_rel"]
    del found[unit.place]
    moved["t_rel"] = t - _MOMENT_S if edit.operator == EARLY else t + _MOMENT_S
    found.insert(to, moved)


def _change(told: RecordingJson, found: dict[str, Any], edit: Edit) -> None:
    owner = found["payload" if edit.unit.job < 0 else "context"]
    for key in edit.path[:-1]:
        owner = owner[key]
    last = edit.path[-1]
    if edit.operator == ABSENT:
        del owner[last]
        return
    change = _changed(edit.operator, told, edit.unit, edit.path, owner[last])
    assert change is not None
    (owner[last],) = change


def _change_errnum(found: dict[str, Any]) -> None:
    """From success to EINVAL with a text, or from an error to success."""
    if found.get("errnum"):
        found.pop("errnum")
        found.pop("errstr", None)
        return
    found["errnum"] = 22
    found.pop("payload", None)
    found["errstr"] = "Invalid argument"


def _changed(
    operator: str, told: RecordingJson, unit: Unit, path: Path, value: Any
) -> tuple[Any] | None:
    """The value that an operator makes of one; None if it cannot, or it would be the same."""
    made: Any = value
    is_number = type(value) in (int, float)
    match operator:
        case "null":
            made = None
        case "wrong type":
            made = _of_another_type(value, path[-1])
        case "other value" if not is_number:
            made = _another(value, path[-1])
        case "one more" if is_number:
            made = value + 1
        case "one less" if is_number:
            made = value - 1
        case "of another job" if path == ("id",):
            others = [job["id"] for job in told["jobs"] if job["id"] != value]
            made = others[0] if others else value
        case "stale":
            made = _earlier(told, unit, path, value)
        case "first lost" | "last lost" if isinstance(value, list) and len(value) > 1:
            made = value[1:] if operator == FIRST else value[:-1]
        case "first lost" | "last lost" if isinstance(value, str) and _IDSET.fullmatch(value):
            ids = list(Idset.parse(value))
            made = str(Idset.of(ids[1:] if operator == FIRST else ids[:-1])) if ids[1:] else value
    is_same = type(made) is type(value) and made == value
    return None if is_same else (made,)


def _earlier(told: RecordingJson, unit: Unit, path: Path, value: Any) -> Any:
    """The value of the same field in an earlier message or event of the kind; else `value`."""
    units_before = in_recording(told, unit)[: unit.place]
    subject = subject_of(told, unit)
    for place in range(len(units_before) - 1, -1, -1):
        if subject_of(told, unit._replace(place=place)) != subject:
            continue
        had: Any = units_before[place].get("payload" if unit.job < 0 else "context")
        for key in path:
            is_there = isinstance(had, dict) and key in had
            is_there = is_there or (isinstance(had, list) and key in range(len(had)))
            had = had[key] if is_there else None
        if had is not None and had != value:
            return had
    return value


_IDSET: Final = re.compile(r"[0-9]+([,-][0-9]+)*")
_TYPES: Final = {"start": "finish", "finish": "start", "release": "finish", "exception": "finish"}


def _another(value: Any, key: str | int) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + (60.0 if isinstance(value, float) else 1)
    if isinstance(value, str):
        if key == "type" and value in _TYPES:
            return _TYPES[value]
        return "97" if _IDSET.fullmatch(value) else f"{value}x"
    return [0] if isinstance(value, list) else {"x": 0} if isinstance(value, dict) else 0


def _of_another_type(value: Any, _key: str | int) -> Any:
    return ["x"] if isinstance(value, (str, int, float, dict)) else "x"
