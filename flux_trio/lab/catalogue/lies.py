"""Lies: a party sends something else than it would, and so breaks a clause; the judge must name it.

The trace has what was sent instead. `which` says in place of which message; it counts those that
cores send, without the answers of the broker in place of a service.

A `key` may be a path: `data.status` is the key `status` in the object of `data`. A number is a
place in an array, and a text of JSON is entered as what it says, in base64 too: of a commit,
`ops.0.2.execution.nslots` is in the R that its first op stores, and so is
`ops.0.dirent.data.execution.nslots` in the edition current. A path that leads nowhere changes
nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Self

import msgspec

from flux_trio.cores.turns import Outgoing
from flux_trio.formats import FormatError, ResourceSet, format_r, parse_r, treeobj
from flux_trio.formats.errors import Words
from flux_trio.formats.glob import Glob
from flux_trio.lab.catalogue.base import LieInPlaceOf, fault
from flux_trio.lab.catalogue.places import RANK, Machine, Rank, SentMessage, check_number
from flux_trio.lab.catalogue.requests import check_topic, unfit_ranks
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import MATCHTAG_NONE, NORESPONSE, STREAMING

NOBODYS_ID: Final = 12_345
"""A job id that no job of a world has."""


def _edited(message: Outgoing, payload: Any) -> Outgoing:
    return msgspec.structs.replace(message, payload=payload)


REMOVED: Final = object()
"""Stands for the value of a key that is taken away."""


def changed(found: Any, path: Sequence[str], value: Any) -> Any:
    """Return a copy of `found` with `value` at the end of the path."""
    match found:
        case str():
            with suppress(msgspec.MsgspecError):
                return msgspec.json.encode(
                    changed(msgspec.json.decode(found), path, value)
                ).decode()
            with suppress(msgspec.MsgspecError, ValueError):  # a value of Flux's kvs
                inside = msgspec.json.decode(base64.b64decode(found, validate=True))
                new = msgspec.json.encode(changed(inside, path, value))
                return base64.b64encode(new).decode()
        case dict():
            key, *rest = path
            if value is REMOVED and (not rest or key not in found):
                return {each: found[each] for each in found if each != key}
            return found | {key: changed(found.get(key, {}), rest, value) if rest else value}
        case list() | tuple() if path[0].isdecimal() and int(path[0]) < len(found):
            place, *rest = int(path[0]), *path[1:]
            new = changed(found[place], rest, value) if rest else value
            return [*found[:place], *([] if new is REMOVED else [new]), *found[place + 1 :]]
    return found


def _object(message: Outgoing) -> dict[str, Any]:
    return message.payload if isinstance(message.payload, dict) else {}


@fault
class RemovedKey(LieInPlaceOf, frozen=True):
    """The payload lacks `key`."""

    key: str

    drawn_about: ClassVar[tuple[str, ...]] = ("answer",)

    @classmethod
    def about(cls, which: SentMessage) -> Self:
        return cls(which, "id")

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [_edited(message, changed(_object(message), self.key.split("."), REMOVED))]


@fault
class ChangedKey(LieInPlaceOf, frozen=True):
    """The payload has `value` for `key`."""

    key: str
    value: bool | int | float | str | list[Any] | dict[str, Any]

    drawn_about: ClassVar[tuple[str, ...]] = ("answer",)

    @classmethod
    def about(cls, which: SentMessage) -> Self:
        return cls(which, "id", -1)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [_edited(message, changed(_object(message), self.key.split("."), self.value))]


@fault
class NoObject(LieInPlaceOf, frozen=True):
    """The payload is a text instead of an object."""

    text: str = "no object"

    drawn_about: ClassVar[tuple[str, ...]] = ("answer", "resources", "hello")

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [_edited(message, self.text)]


@fault
class WrongType(LieInPlaceOf, frozen=True):
    """The answer is of a type `number` that the protocol does not have."""

    number: int = 7

    drawn_about: ClassVar[tuple[str, ...]] = ("answer",)

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        _check_answer(self.which)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [_edited(message, _object(message) | {"type": self.number})]


@fault
class UnknownId(LieInPlaceOf, frozen=True):
    """The message is about a job that nobody knows."""

    drawn_about: ClassVar[tuple[str, ...]] = ("answer",)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [_edited(message, _object(message) | {"id": NOBODYS_ID})]


@fault
class Repeated(LieInPlaceOf, frozen=True):
    """The message is sent twice."""

    drawn_about: ClassVar[tuple[str, ...]] = ("answer", "resources")

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        if self.which.type == "request":
            # of two requests with one matchtag nobody can say which one an answer is for
            raise FormatError("response or event", self.which.type, "which.type")

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [message, message]


@fault
class StrayAnswer(LieInPlaceOf, frozen=True):
    """After the message a second one like it is sent, about a job that nobody knows."""

    drawn_about: ClassVar[tuple[str, ...]] = ("answer",)

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        _check_answer(self.which)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [message, _edited(message, _object(message) | {"id": NOBODYS_ID})]


@fault
class AlsoSaid(LieInPlaceOf, frozen=True):
    """After the message a second one like it is sent, with these `keys` in its payload, and to
    another `topic` if that is given.

    If it is a request, the second one asks for no response.
    """

    keys: dict[str, Any] = msgspec.field(default_factory=dict)
    topic: str = ""

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        other = _edited(message, _object(message) | self.keys)
        if isinstance(other, Request):
            other = msgspec.structs.replace(other, matchtag=MATCHTAG_NONE, flags=NORESPONSE)
        return [message, msgspec.structs.replace(other, topic=self.topic or message.topic)]


@fault
class AlsoAsked(LieInPlaceOf, frozen=True):
    """After the message a request to `topic` is sent, which asks for no response."""

    topic: str
    payload: dict[str, Any]

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        check_topic(self.topic)

    def unfit_ranks(self, machine: Machine) -> tuple[int, ...]:
        return unfit_ranks(self.payload, machine)

    @property
    def may_exclude(self) -> bool:
        return self.topic == topics.RESOURCE_EXCLUDE

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [message, Request(self.topic, self.payload, flags=NORESPONSE)]


@fault
class NotStreaming(LieInPlaceOf, frozen=True):
    """The message lacks the streaming flag."""

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [msgspec.structs.replace(message, flags=message.flags & ~STREAMING)]


@fault
class Withheld(LieInPlaceOf, frozen=True):
    """The message is not sent."""

    drawn_about: ClassVar[tuple[str, ...]] = ("answer", "execution", "resources", "hello")

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:  # noqa: ARG002 - the interface
        return []


@fault
class ErrorAnswer(LieInPlaceOf, frozen=True):
    """The answer is an error response with this `errnum`."""

    errnum: int = Errno.EINVAL

    drawn_about: ClassVar[tuple[str, ...]] = ("answer", "execution", "resources")

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        _check_answer(self.which)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        if not isinstance(message, Response):
            return [message]
        return [msgspec.structs.replace(message, errnum=self.errnum, payload="an error as planned")]


@fault
class GrantOverlap(LieInPlaceOf, frozen=True):
    """The scheduler stores an R of the core `core` of `rank`, although another job holds it.

    `which` is a kvs.commit of the scheduler.
    """

    rank: Rank = 0
    core: Rank = 0

    drawn_about: ClassVar[tuple[str, ...]] = ("grant",)

    def check(self, machine: Machine) -> None:
        check_number(self.rank, RANK, machine.nnodes, "rank")
        check_number(
            self.core, "the number of one of the {} cores of a node", machine.cores, "core"
        )
        _check_grant(self.which)

    def on_machine(self, machine: Machine) -> Self:
        rank, core = min(self.rank, machine.nnodes - 1), min(self.core, machine.cores - 1)
        return msgspec.structs.replace(self, rank=rank, core=core)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [_granting(message, self.rank, self.core)]


@fault
class GrantForeign(LieInPlaceOf, frozen=True):
    """The scheduler stores an R that names a `rank` which the instance does not have.

    `which` is a kvs.commit of the scheduler.
    """

    rank: Rank = 99

    drawn_about: ClassVar[tuple[str, ...]] = ("grant",)

    def check(self, machine: Machine) -> None:
        if self.rank < machine.nnodes:
            expected = f"a rank that none of the {machine.nnodes} nodes has"
            raise FormatError(expected, self.rank, "rank")
        _check_grant(self.which)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return [_granting(message, self.rank, 0)]


def _check_answer(which: SentMessage) -> None:
    if which.type != "response":
        raise FormatError("response", which.type, "which.type")


def _check_grant(which: SentMessage) -> None:
    """Raise FormatError if this cannot be the message by which the scheduler stores an R."""
    is_commit = which.type == "request" and Glob(which.topic).matches(topics.KVS_COMMIT)
    if not is_commit or which.party not in ("", topics.SCHED):
        got = Words(f"a {which.type} {which.topic}" + (f" of {which.party}" * bool(which.party)))
        raise FormatError(f"a request {topics.KVS_COMMIT} of {topics.SCHED}", got, "which")


def _granting(commit: Outgoing, rank: int, core: int) -> Outgoing:
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
        case {"key": str(key), "dirent": {"type": "val"} as found} if key.endswith(".R"):
            try:
                granted = parse_r(treeobj.text_of(found))
            except FormatError:
                return op
            return {**op, "dirent": treeobj.val(_at(granted, rank, core))}
    return op


def _at(granted: ResourceSet, rank: int, core: int) -> str:
    other = ResourceSet.build([(rank, 1 << core, 0)], "node{}".format)
    return format_r(other.with_times(granted.starttime, granted.expiration))
