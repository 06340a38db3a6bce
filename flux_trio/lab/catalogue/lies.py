"""Lies: a party breaks a clause. It says something else than it would, and the judge must name it.

The trace has what the party has said. `which` counts the messages of that topic that cores send;
answers of the broker in place of a service are not among them.

A `key` may be a path: `data.status` is the key `status` in the object of `data`. A number is a
place in an array, and a text of JSON is entered as what it says: `ops.0.2.execution.nslots` of a
commit is in the R that its first op stores. A path that leads nowhere changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flux_trio.formats import FormatError, ResourceSet, format_r, parse_r
from flux_trio.lab.catalogue.base import LieInPlaceOf, Rank
from flux_trio.messages import Errno, Event, Request, Response
from flux_trio.messages.types import MATCHTAG_NONE, NORESPONSE, STREAMING

Said = Request | Response | Event

NOBODYS_ID: Final = 12_345
"""A job id that no job of a world has."""


def _edited(message: Said, payload: Any) -> Said:
    return msgspec.structs.replace(message, payload=payload)


_REMOVED: Final = object()
"""In place of a value: what was there is taken away."""


def _changed(found: Any, path: Sequence[str], value: Any) -> Any:
    """Return `found` with `value` at the end of the path."""
    match found:
        case str():
            try:
                inside = msgspec.json.decode(found)
            except msgspec.MsgspecError:
                return found
            return msgspec.json.encode(_changed(inside, path, value)).decode()
        case dict():
            key, *rest = path
            if value is _REMOVED and (not rest or key not in found):
                return {each: found[each] for each in found if each != key}
            return found | {key: _changed(found.get(key, {}), rest, value) if rest else value}
        case list() | tuple() if path[0].isdecimal() and int(path[0]) < len(found):
            place, *rest = int(path[0]), *path[1:]
            new = _changed(found[place], rest, value) if rest else value
            return [*found[:place], *([] if new is _REMOVED else [new]), *found[place + 1 :]]
    return found


def _object(message: Said) -> dict[str, Any]:
    return message.payload if isinstance(message.payload, dict) else {}


class RemovedKey(LieInPlaceOf, frozen=True):
    """The payload lacks `key`."""

    key: str

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, _changed(_object(message), self.key.split("."), _REMOVED))]


class ChangedKey(LieInPlaceOf, frozen=True):
    """The payload has `value` for `key`."""

    key: str
    value: bool | int | float | str | list[Any] | dict[str, Any]

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, _changed(_object(message), self.key.split("."), self.value))]


class NoObject(LieInPlaceOf, frozen=True):
    """The payload is a text instead of an object."""

    text: str = "no object"

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, self.text)]


class WrongType(LieInPlaceOf, frozen=True):
    """The answer is of a type `number` that the protocol does not have."""

    number: int = 7

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, _object(message) | {"type": self.number})]


class UnknownId(LieInPlaceOf, frozen=True):
    """The message is about a job that nobody knows."""

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, _object(message) | {"id": NOBODYS_ID})]


class Repeated(LieInPlaceOf, frozen=True):
    """The message is sent twice."""

    def said(self, message: Said) -> list[Said]:
        return [message, message]


class StrayAnswer(LieInPlaceOf, frozen=True):
    """After the message comes another one, about a job that nobody knows."""

    def said(self, message: Said) -> list[Said]:
        return [message, _edited(message, _object(message) | {"id": NOBODYS_ID})]


class AlsoSaid(LieInPlaceOf, frozen=True):
    """After the message comes another one like it, with other `keys` and, if given, its `topic`.

    After a request nobody has to answer the other one.
    """

    keys: dict[str, Any] = msgspec.field(default_factory=dict)
    topic: str = ""

    def said(self, message: Said) -> list[Said]:
        other = _edited(message, _object(message) | self.keys)
        if isinstance(other, Request):
            other = msgspec.structs.replace(other, matchtag=MATCHTAG_NONE, flags=NORESPONSE)
        return [message, msgspec.structs.replace(other, topic=self.topic or message.topic)]


class AlsoAsked(LieInPlaceOf, frozen=True):
    """After the message comes a request `topic` that nobody has to answer."""

    topic: str
    payload: dict[str, Any]

    def said(self, message: Said) -> list[Said]:
        return [message, Request(self.topic, self.payload, flags=NORESPONSE)]


class NotStreaming(LieInPlaceOf, frozen=True):
    """The message lacks the flag of a stream."""

    def said(self, message: Said) -> list[Said]:
        return [msgspec.structs.replace(message, flags=message.flags & ~STREAMING)]


class Withheld(LieInPlaceOf, frozen=True):
    """The message is not sent."""

    def said(self, message: Said) -> list[Said]:  # noqa: ARG002 - the interface
        return []


class ErrorAnswer(LieInPlaceOf, frozen=True):
    """The answer is an error, `errnum`."""

    errnum: int = Errno.EINVAL

    def said(self, message: Said) -> list[Said]:
        if not isinstance(message, Response):
            return [message]
        return [msgspec.structs.replace(message, errnum=self.errnum, payload="an error as planned")]


class GrantOverlap(LieInPlaceOf, frozen=True):
    """The scheduler stores an R of the core `core` of `rank`, although another job holds it.

    `which` is a kvs.commit of the scheduler.
    """

    rank: Rank = 0
    core: Rank = 0

    def said(self, message: Said) -> list[Said]:
        return [_granting(message, self.rank, self.core)]


class GrantForeign(LieInPlaceOf, frozen=True):
    """The scheduler stores an R that names a `rank` which the instance does not have.

    `which` is a kvs.commit of the scheduler.
    """

    rank: Rank = 99

    def said(self, message: Said) -> list[Said]:
        return [_granting(message, self.rank, 0)]


def _granting(commit: Said, rank: int, core: int) -> Said:
    """Return a commit whose R has one core."""
    payload = _object(commit)
    if not isinstance(ops := payload.get("ops"), list):
        return commit  # it is no commit of the scheduler, but of a client that says anything
    return _edited(commit, payload | {"ops": [_granting_op(op, rank, core) for op in ops]})


def _granting_op(op: Any, rank: int, core: int) -> Any:
    match op:
        case [what, str(key), str(text), *_] if key.endswith(".R"):
            try:
                granted = parse_r(text)
            except FormatError:
                return op
            return [what, key, _at(granted, rank, core)]
    return op


def _at(granted: ResourceSet, rank: int, core: int) -> str:
    other = ResourceSet.build([(rank, 1 << core, 0)], "node{}".format)
    return format_r(other.with_times(granted.starttime, granted.expiration))
