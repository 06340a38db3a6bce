"""Edits: drawn by a seed from all messages and events of all recordings, and made."""

from __future__ import annotations

import functools
import random
import re
from typing import Any, Final, NamedTuple, TypeAlias

from tests.support.recorded import Told, numbers, recording

SEED: Final = 20261122
COUNT: Final = 2000

DELETED, REPEATED, EARLIER, LATER = "deleted", "repeated", "moved earlier", "moved later"
OTHER, REMOVED, TYPED = "other value", "removed key", "other type"
KINDS: Final = ((DELETED,), (REPEATED,), (EARLIER, LATER), (OTHER, REMOVED, TYPED))
"""Each is drawn as often as the others, and each way of it as often as its others."""

Path: TypeAlias = tuple[str | int, ...]

ALLOC_TYPES: Final = ("SUCCESS", "ANNOTATE", "DENY", "CANCEL")
_EXEC: Final = re.compile(r"(job|test)-exec[a-z0-9-]*\.(start|shutdown|expiration)")
_MOMENT_S: Final = 1e-6


class Unit(NamedTuple):
    """A message, or an event of a job, by its place in a recording."""

    number: str
    job: int
    """The place of the job; -1 for a message."""
    place: int


class Edit(NamedTuple):
    """One change of a recording."""

    unit: Unit
    kind: str
    path: Path = ()

    @property
    def name(self) -> str:
        where = f"{self.unit.number} {'message' if self.unit.job < 0 else f'job {self.unit.job}'}"
        return f"{where} {self.unit.place} {self.subject}: {self.kind} {self.field}".rstrip()

    @property
    def subject(self) -> str:
        """What is edited, as the table names it."""
        return subject_of(_read(self.unit.number), self.unit)

    @property
    def field(self) -> str:
        """The path of the field, without places in arrays."""
        return ".".join(each if isinstance(each, str) else "[]" for each in self.path)


@functools.cache
def _read(number: str) -> Told:
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


def in_recording(told: Told, unit: Unit) -> list[dict[str, Any]]:
    """The list that the unit is in."""
    found: list[dict[str, Any]] = (
        told["messages"] if unit.job < 0 else told["jobs"][unit.job]["eventlog"]
    )
    return found


def subject_of(told: Told, unit: Unit) -> str:
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


def edits(count: int = COUNT, seed: int = SEED) -> list[Edit]:
    """The first `count` edits that differ."""
    draw, all_units = random.Random(seed), units()
    found: dict[str, Edit] = {}
    while len(found) < count:
        kind, edit = draw.choice(draw.choice(KINDS)), None
        while edit is None:
            edit = _draw(draw, draw.choice(all_units), kind)
        found.setdefault(edit.name, edit)
    return list(found.values())


def _draw(draw: random.Random, unit: Unit, kind: str) -> Edit | None:
    """An edit of this kind; None if the unit cannot be changed so."""
    told = _read(unit.number)
    if kind in (EARLIER, LATER):
        return Edit(unit, kind) if _neighbor(told, unit, kind) is not None else None
    if kind not in (OTHER, REMOVED, TYPED):
        return Edit(unit, kind)
    path = _draw_path(draw, in_recording(told, unit)[unit.place], unit)
    return None if path is None else Edit(unit, kind, path)


def _draw_path(draw: random.Random, found: dict[str, Any], unit: Unit) -> Path | None:
    """Draw a key, then one below it, down to a value that has none."""
    if unit.job < 0 and found["type"] == "response" and draw.random() < 0.1:
        return ("errnum",)
    value: Any = found.get("payload" if unit.job < 0 else "context")
    path: Path = ()
    while isinstance(value, (dict, list)) and value:
        key = draw.choice(sorted(value)) if isinstance(value, dict) else draw.randrange(len(value))
        path, value = (*path, key), value[key]
    return path or None


# --- making them


def made(edit: Edit) -> Told:
    """The recording with the edit."""
    told = recording(edit.unit.number)
    place, found = edit.unit.place, in_recording(told, edit.unit)
    match edit.kind:
        case "deleted":
            del found[place]
        case "repeated":
            found.insert(place, dict(found[place]))
        case "moved earlier" | "moved later":
            _move(told, edit)
        case _:
            _change(found[place], edit)
    return told


def _neighbor(told: Told, unit: Unit, kind: str) -> int | None:
    """The place of the message or event beside which the unit is moved.

    Of a message of RFC 27 or 32 about a job: the next one of that job in that direction. Of
    another: a request goes behind the next response of its topic, a response before the last
    request.
    """
    found = in_recording(told, unit)
    step = -1 if kind == EARLIER else 1
    place = unit.place + step
    while 0 <= place < len(found):
        if _is_related(found[unit.place], found[place], kind):
            return place
        place += step
    return None


def _is_related(one: dict[str, Any], other: dict[str, Any], kind: str) -> bool:
    """Whether the move would change the order of two that belong together."""
    if "topic" not in one:
        names = {one["name"], other["name"]}
        return names != _UNORDERED and not any(name.startswith("debug.") for name in names)
    if _is_of_job(one):
        return _is_of_job(other) and bool(_ids(one) & _ids(other))
    is_of_both = {one["from"], one["to"]} == {other["from"], other["to"]}
    is_rpc = one["topic"] == other["topic"] and is_of_both and one["type"] != other["type"]
    return is_rpc and one["type"] == ("response" if kind == EARLIER else "request")


_UNORDERED: Final = {"validate", "dependency-add"}
"""A dependency may be added in NEW and in DEPEND."""


def _is_of_job(message: dict[str, Any]) -> bool:
    topic: str = message["topic"]
    return (topic.startswith("sched.") and topic != "sched.expiration") or topic.endswith(".start")


def _ids(message: dict[str, Any]) -> set[Any]:
    payload = message.get("payload", {})
    return {payload["id"]} if "id" in payload else {each[0] for each in payload.get("jobs", ())}


def _move(told: Told, edit: Edit) -> None:
    """Put it right before the neighbor, or right after it, at its time."""
    found, unit = in_recording(told, edit.unit), edit.unit
    to = _neighbor(told, unit, edit.kind)
    assert to is not None
    moved, t = found[unit.place], found[to]["t_rel"]
    del found[unit.place]
    moved["t_rel"] = t - _MOMENT_S if edit.kind == EARLIER else t + _MOMENT_S
    found.insert(to, moved)


def _change(found: dict[str, Any], edit: Edit) -> None:
    if edit.path == ("errnum",):
        _change_errnum(found, edit.kind)
        return
    owner = found["payload" if edit.unit.job < 0 else "context"]
    for key in edit.path[:-1]:
        owner = owner[key]
    last = edit.path[-1]
    if edit.kind == REMOVED:
        del owner[last]
    else:
        change = _another if edit.kind == OTHER else _of_another_type
        owner[last] = change(owner[last], last)


def _change_errnum(found: dict[str, Any], kind: str) -> None:
    """From success to EINVAL with a text, or from an error to success."""
    if found.get("errnum"):
        found.pop("errnum")
        found.pop("errstr", None)
        return
    found["errnum"] = 22 if kind != TYPED else 71
    found.pop("payload", None)
    found["errstr"] = "Invalid argument"


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
