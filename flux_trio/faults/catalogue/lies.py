"""Lies: a party breaks a clause. It says something else than it would, and the judge must name it.

The trace has what the party has said. `which` counts the messages of that topic that cores send;
answers of the broker in place of a service are not among them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flux_trio.faults.catalogue.base import Lie, Rank
from flux_trio.formats import ResourceSet, format_r, parse_r
from flux_trio.messages import Errno, Event, Request, Response

Said = Request | Response | Event

NOBODYS_ID: Final = 12_345
"""A job id that no job of a world has."""


def _edited(message: Said, payload: Any) -> Said:
    return msgspec.structs.replace(message, payload=payload)


def _object(message: Said) -> dict[str, Any]:
    return message.payload if isinstance(message.payload, dict) else {}


class RemovedKey(Lie, frozen=True):
    """The payload lacks `key`."""

    key: str

    def said(self, message: Said) -> list[Said]:
        kept = {key: value for key, value in _object(message).items() if key != self.key}
        return [_edited(message, kept)]


class ChangedKey(Lie, frozen=True):
    """The payload has `value` for `key`."""

    key: str
    value: int | float | str | list[Any] | dict[str, Any]

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, _object(message) | {self.key: self.value})]


class NoObject(Lie, frozen=True):
    """The payload is a text instead of an object."""

    text: str = "no object"

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, self.text)]


class WrongType(Lie, frozen=True):
    """The answer is of a type `number` that the protocol does not have."""

    number: int = 7

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, _object(message) | {"type": self.number})]


class UnknownId(Lie, frozen=True):
    """The message is about a job that nobody knows."""

    def said(self, message: Said) -> list[Said]:
        return [_edited(message, _object(message) | {"id": NOBODYS_ID})]


class Repeated(Lie, frozen=True):
    """The message is sent twice."""

    def said(self, message: Said) -> list[Said]:
        return [message, message]


class StrayAnswer(Lie, frozen=True):
    """After the message comes another one, about a job that nobody knows."""

    def said(self, message: Said) -> list[Said]:
        return [message, _edited(message, _object(message) | {"id": NOBODYS_ID})]


class Withheld(Lie, frozen=True):
    """The message is not sent."""

    def said(self, message: Said) -> list[Said]:  # noqa: ARG002 - the interface
        return []


class ErrorAnswer(Lie, frozen=True):
    """The answer is an error, `errnum`."""

    errnum: int = Errno.EINVAL

    def said(self, message: Said) -> list[Said]:
        if not isinstance(message, Response):
            return [message]
        return [msgspec.structs.replace(message, errnum=self.errnum, payload="an error as planned")]


class GrantOverlap(Lie, frozen=True):
    """The scheduler stores an R of the core `core` of `rank`, although another job holds it.

    `which` is a kvs.commit of the scheduler.
    """

    rank: Rank = 0
    core: Rank = 0

    def said(self, message: Said) -> list[Said]:
        return [_granting(message, self.rank, self.core)]


class GrantForeign(Lie, frozen=True):
    """The scheduler stores an R that names a `rank` which the instance does not have.

    `which` is a kvs.commit of the scheduler.
    """

    rank: Rank = 99

    def said(self, message: Said) -> list[Said]:
        return [_granting(message, self.rank, 0)]


def _granting(commit: Said, rank: int, core: int) -> Said:
    """Return a commit whose R has one core."""
    payload = _object(commit)
    ops = [
        [what, key, _at(parse_r(text[0]), rank, core)] if key.endswith(".R") and text else op
        for op in payload.get("ops", ())
        for what, key, *text in [op]
    ]
    return _edited(commit, payload | {"ops": ops})


def _at(granted: ResourceSet, rank: int, core: int) -> str:
    other = ResourceSet.build([(rank, 1 << core, 0)], "node{}".format)
    return format_r(other.with_times(granted.starttime, granted.expiration))
