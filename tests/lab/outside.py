"""Mistakes from outside a program: what a right program says is changed on its way to the instance.

A cell is a message, a field of it and an operator. Every message of the kind is changed, as a
program with this mistake would say it: so no author has to be found who makes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.broker import LocalHandle
from flux_trio.cores.turns import Outgoing
from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import FormatError, Idset
from flux_trio.instance import Instance
from flux_trio.lab.catalogue.base import LieInPlaceOf
from flux_trio.lab.catalogue.lies import (
    REMOVED,
    ErrorAnswer,
    NoObject,
    NotStreaming,
    Repeated,
    StrayAnswer,
    UnknownId,
    Withheld,
    WrongType,
    changed,
)
from flux_trio.lab.catalogue.places import SentMessage
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, Event, Request, Response, topics

Kind: TypeAlias = Callable[[Outgoing], bool]
"""Whether a message is of the kind that is changed."""
Change: TypeAlias = Callable[[Any, Any], Any]
"""Returns what stands in place of a value; the second one was in the message before."""

MISSING: Final = object()


def at(found: Any, path: Sequence[str]) -> Any:
    """Return the value at the end of a path as lies have it; MISSING if it leads nowhere."""
    for key in path:
        if isinstance(found, str):
            try:
                found = msgspec.json.decode(found)
            except msgspec.MsgspecError:
                return MISSING
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list | tuple) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return MISSING
    return found


def _other_type(value: Any, _before: Any) -> Any:
    return 7 if isinstance(value, str | dict | list) else "seven"


def _stale(value: Any, before: Any) -> Any:
    return value if before is MISSING else before


def _off_by_one(value: Any, _before: Any) -> Any:
    return value + 1 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _negated(value: Any, _before: Any) -> Any:
    return not value if isinstance(value, bool) else value


def _without(which: int) -> Change:
    def change(value: Any, _before: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) > 1:
            return [each for n, each in enumerate(value) if n != which % len(value)]
        if isinstance(value, str):
            try:
                ids = list(Idset.parse(value))
            except FormatError:
                return value
            if len(ids) > 1:
                del ids[which]
                return str(Idset.of(ids))
        return value

    return change


FIELD_OPERATORS: Final[dict[str, Change]] = {
    "absent": lambda _value, _before: REMOVED,
    "null": lambda _value, _before: None,
    "wrong type": _other_type,
    "stale": _stale,
    "off by one": _off_by_one,
    "negated": _negated,
    "negative": lambda value, _before: -value - 1,
    "huge": lambda value, _before: value + 2**53,
    "empty": lambda value, _before: type(value)(),
    "one twice": lambda value, _before: [*value, value[-1]],
    "first lost": _without(0),
    "last lost": _without(-1),
}


class Changer:
    """Changes a field of each message of a kind."""

    def __init__(self, path: str, change: Change) -> None:
        self._path = path.split(".")
        self._change = change
        self._before: Any = MISSING
        self.nchanged = 0

    def __call__(self, message: Outgoing) -> list[Outgoing]:
        value = at(message.payload, self._path)
        if value is MISSING:
            return [message]
        new, self._before = self._change(value, self._before), value
        if new is value or (new == value and type(new) is type(value)):
            return [message]
        self.nchanged += 1
        payload = changed(message.payload, self._path, new)
        return [msgspec.structs.replace(message, payload=payload)]


class Teller:
    """Sends something else in place of each message of a kind, as a lie of the catalogue says."""

    def __init__(self, lie: LieInPlaceOf) -> None:
        self._lie = lie
        self.nchanged = 0

    def __call__(self, message: Outgoing) -> list[Outgoing]:
        told = self._lie.in_place_of(message)
        self.nchanged += told != [message]
        return told


class Late:
    """Sends each message of a kind behind the next one that is sent."""

    def __init__(self) -> None:
        self.nchanged = 0
        self.held: list[Outgoing] = []

    def __call__(self, message: Outgoing) -> list[Outgoing]:
        self.nchanged += 1
        self.held.append(message)
        return []


class Misled:
    """Sends each message of a kind to another service, or in the name of one."""

    def __init__(self) -> None:
        self.nchanged = 0

    def __call__(self, message: Outgoing) -> list[Outgoing]:
        self.nchanged += 1
        method = message.topic.rpartition(".")[2]
        return [msgspec.structs.replace(message, topic=f"job-list.{method}")]


Lying: TypeAlias = Changer | Teller | Late | Misled


class LyingHandle(LocalHandle):
    """The handle of a program, of which each message of a `kind` is changed by `lie`."""

    kind: Kind
    lie: Lying

    def send(self, message: Request | Response | Event) -> None:
        if isinstance(message, Event) or not self.kind(message):
            super().send(message)
            self._send_held()
            return
        for each in self.lie(message):
            super().send(each)

    def _send_held(self) -> None:
        if isinstance(self.lie, Late):
            held, self.lie.held = self.lie.held, []
            for each in held:
                super().send(each)


def lying_handle(instance: Instance, kind: Kind, lie: Lying) -> LyingHandle:
    """Return the handle of another life of the program."""
    name = instance.router.unique_name("program")
    handle = LyingHandle(
        name, instance.router, instance.now, instance.log, 0, ROLE_LOCAL | ROLE_OWNER
    )
    handle.kind, handle.lie = kind, lie
    return handle


@dataclass(frozen=True)
class Message:
    """A kind of message of a program: its fields as paths with what they are, acts that have it."""

    name: str
    topic: str
    is_response: bool
    fields: Mapping[str, str]
    titles: tuple[str, ...]
    type: object = None  # of an answer

    def is_it(self, message: Outgoing) -> bool:
        payload: Any = message.payload
        topic = message.topic
        if not (topic == self.topic or (self.topic[0] == "." and topic.endswith(self.topic))):
            return False
        if isinstance(message, Response) != self.is_response:
            return False
        if isinstance(message, Response) and message.errnum:
            return False
        if self.type is not None:
            return isinstance(payload, dict) and payload.get("type") == self.type
        return True


@dataclass(frozen=True)
class Cell:
    """A message, a field of it ("" for the whole) and an operator."""

    message: Message
    field: str
    operator: str

    @property
    def name(self) -> str:
        return " | ".join((self.message.name, self.field or "whole", self.operator))

    def lie(self) -> Lying:
        """Return what changes the messages."""
        if self.field:
            return Changer(self.field, FIELD_OPERATORS[self.operator])
        kind = "response" if self.message.is_response else "request"
        which = SentMessage(self.message.topic.lstrip("."), 1, kind)
        if self.operator == "late":
            return Late()
        if self.operator == "to another peer":
            return Misled()
        return Teller(WHOLE_OPERATORS[self.operator](which))


WHOLE_OPERATORS: Final[dict[str, Callable[[SentMessage], LieInPlaceOf]]] = {
    "lost": Withheld,
    "no object": NoObject,
    "twice": Repeated,
    "with another one about nobody": StrayAnswer,
    "about nobody": UnknownId,
    "of an unknown type": WrongType,
    "an error": ErrorAnswer,
    "not streaming": NotStreaming,
}
_OF_REQUESTS: Final = ("lost", "no object", "not streaming", "late", "to another peer")
_OF_ANSWERS: Final = (
    *("lost", "no object", "twice", "with another one about nobody", "about nobody"),
    *("of an unknown type", "an error", "late", "to another peer"),
)


def cells_of(messages: Sequence[Message]) -> Iterator[Cell]:
    """Yield all cells of some messages."""
    for message in messages:
        for operator in _OF_ANSWERS if message.is_response else _OF_REQUESTS:
            yield Cell(message, "", operator)
        for field, kind in message.fields.items():
            for operator in OPERATORS_OF[kind]:
                yield Cell(message, field, operator)


_ALL: Final = ("absent", "null", "wrong type")
OPERATORS_OF: Final[dict[str, tuple[str, ...]]] = {
    "id": (*_ALL, "stale", "off by one", "negative", "huge"),
    "number": (*_ALL, "stale", "off by one", "negative", "huge"),
    "text": (*_ALL, "empty"),
    "key": (*_ALL, "empty", "stale"),
    "object": (*_ALL, "empty"),
    "truth": (*_ALL, "negated"),
    "list": (*_ALL, "empty", "one twice", "first lost", "last lost"),
    "idset": (*_ALL, "empty", "stale", "first lost", "last lost"),
}
"""The operators of a field by what it is."""

_R: Final = "ops.0.2"
_EXECUTION: Final = f"{_R}.execution"
_SCHED: Final = {"id": "id", "type": "number"}
_EXEC: Final = {"id": "id", "type": "text", "data": "object"}
SMALL: Final = ("one job", "jobs of several sizes")
TAKEN: Final = ("nodes are taken away and given back",)
KILLED: Final = ("the program is killed while jobs run and wait",)
FREED: Final = ("one of two jobs ends while a third one waits for both",)
IMPOSSIBLE: Final = ("jobs that can never run",)
CANCELED: Final = ("a waiting job is canceled",)
UPDATED: Final = ("a running job gets a new expiration",)
COMMIT: Final = {
    "ops": "list",
    "ops.0.0": "text",
    "ops.0.1": "key",
    _R: "text",
    f"{_R}.version": "number",
    _EXECUTION: "object",
    f"{_EXECUTION}.R_lite": "list",
    f"{_EXECUTION}.R_lite.0.rank": "idset",
    f"{_EXECUTION}.R_lite.0.children": "object",
    f"{_EXECUTION}.R_lite.0.children.core": "idset",
    f"{_EXECUTION}.nodelist": "list",
    f"{_EXECUTION}.nodelist.0": "text",
    f"{_EXECUTION}.nslots": "number",
    f"{_EXECUTION}.starttime": "number",
    f"{_EXECUTION}.expiration": "number",
}
RAISE: Final = {"id": "id", "severity": "number", "type": "text", "note": "text"}

SCHED_MESSAGES: Final = (
    Message("resource.acquire", topics.RESOURCE_ACQUIRE, False, {"group": "text"}, SMALL[:1]),
    Message("sched-hello", topics.SCHED_HELLO, False, {}, SMALL[:1]),
    Message("sched-ready", topics.SCHED_READY, False, {"mode": "text"}, SMALL[:1]),
    Message("kvs.commit", topics.KVS_COMMIT, False, COMMIT, SMALL),
    Message("SUCCESS", topics.SCHED_ALLOC, True, _SCHED, SMALL, AllocType.SUCCESS),
    Message(
        "DENY", topics.SCHED_ALLOC, True, _SCHED | {"note": "text"}, IMPOSSIBLE, AllocType.DENY
    ),
    Message("CANCEL", topics.SCHED_ALLOC, True, _SCHED, CANCELED, AllocType.CANCEL),
    Message("free", topics.SCHED_FREE, True, {"id": "id"}, (*SMALL, *FREED)),
    Message("expiration", topics.SCHED_EXPIRATION, True, {}, UPDATED),
    Message("raise", topics.JOB_RAISE, False, RAISE, TAKEN),
    Message(
        "release of a node",
        topics.RESOURCE_RELEASE,
        False,
        {"group": "text", "targets": "idset"},
        TAKEN,
    ),
)
RUN: Final = ("one job", "a job on several nodes", "a running job is canceled")
IN_TURN: Final = "the tasks of a job end one after the other"
FAILED: Final = ("a command that cannot be started", "a job exceeds its time limit")
EXCEPTION: Final = {"data.severity": "number", "data.type": "text", "data.note": "text"}
RELEASE: Final = {"data.ranks": "idset", "data.final": "truth"}
STATUS: Final = {"data.status": "number"}
EXEC_MESSAGES: Final = (
    Message("exec-hello", topics.EXEC_HELLO, False, {"service": "text"}, RUN[:1]),
    Message("start", ".start", True, _EXEC, RUN, "start"),
    Message("finish", ".start", True, _EXEC | STATUS, RUN, "finish"),
    Message("release", ".start", True, _EXEC | RELEASE, (*RUN, IN_TURN), "release"),
    Message("exception", ".start", True, _EXEC | EXCEPTION, FAILED, "exception"),
)
