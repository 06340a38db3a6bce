"""Types that say what a number means: a job, an open request, a moment. Pure.

For a type checker and for msgspec they are `int`, `float` and `str`. For a reader they say what
a number stands for; and tests read them, to find that two states of a core differ in nothing but
how things are numbered.
"""

from __future__ import annotations

from array import array
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

import msgspec


class Number(msgspec.Struct, frozen=True):
    """Numbers of one kind, of which only equality and order matter; 0 stands for no number."""

    kind: str


class Meaning(Enum):
    """What else a value may mean."""

    TIME = "a time; a decision depends on how far it is from now, or from another time"
    USEC = "a time in microseconds since the Unix epoch; from 2**63 on it is no time"
    NOW = "the time of this turn, from which the others are counted"
    LAST = "where a numbering has got to; it decides nothing but the numbers that follow"
    PEER = "the sender whose matchtags stand beside or below it"
    JSON = "a value of JSON that nobody changes: equal ones are not told apart"
    FOR_PEOPLE = "for the text of an error or a log; it decides nothing"
    DERIVED = "made of the values beside it: what counts is whether it is there"
    KVS_KEY = "a key of the kvs; job ids and times are spelled out in it"
    EVENTLOG = "lines of an eventlog, the last perhaps in part; there are times in them"
    KVS_TEXT = "what the kvs has, or is to have, under the key of the same object"


class Keys(msgspec.Struct, frozen=True):
    """What the values of a dictionary mean: a TypedDict, or pairs of key and type."""

    shape: Any


class Items(msgspec.Struct, frozen=True):
    """The types of a list's items, each in its place."""

    types: tuple[Any, ...]


JobId: TypeAlias = Annotated[int, msgspec.Meta(ge=0), Number("job")]
Matchtag: TypeAlias = Annotated[int, Number("matchtag")]
if TYPE_CHECKING:
    Numbers: TypeAlias = array[int]
    JobIds: TypeAlias = array[int]
    Usecs: TypeAlias = array[int]
else:  # an array can be subscripted only from Python 3.12 on
    Numbers = array
    JobIds = Annotated[array, Number("job")]
    Usecs = Annotated[array, Meaning.USEC]

Stamp: TypeAlias = Annotated[float, Number("stamp")]
"""A time of which only the order matters. Seconds since the Unix epoch, as all times here."""

Time: TypeAlias = Annotated[float, Meaning.TIME]
Usec: TypeAlias = Annotated[int, Meaning.USEC]
Now: TypeAlias = Annotated[float, Meaning.NOW]
Last: TypeAlias = Annotated[int, Meaning.LAST]
Peer: TypeAlias = Annotated[str, Meaning.PEER]
if TYPE_CHECKING:
    Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
    """Any value of JSON, of which nothing more is known."""
else:  # an alias of itself is nothing that msgspec could look up
    Json = Any
JsonObject: TypeAlias = Annotated[dict[str, Any], Meaning.JSON]
KvsKey: TypeAlias = Annotated[str, Meaning.KVS_KEY]
KvsText: TypeAlias = Annotated[str, Meaning.KVS_TEXT]
EventlogText: TypeAlias = Annotated[str, Meaning.EVENTLOG]
KvsOp: TypeAlias = Annotated[list[str], Items((str, KvsKey, KvsText))]
"""One change of the kvs as a message carries it: ["put", key, text]."""


class RowTimes(TypedDict, total=False):
    """What has a meaning in a row of job-list.list."""

    id: JobId
    t_submit: Stamp
    t_depend: Stamp
    t_run: Stamp
    t_cleanup: Stamp
    t_inactive: Stamp
    expiration: Stamp


class RTimes(TypedDict):
    """The times in an R object's key `execution` (RFC 20)."""

    starttime: Time
    expiration: Time


class RObject(TypedDict):
    """What has a meaning in a decoded R object."""

    execution: RTimes


JobRow: TypeAlias = Annotated[dict[str, Any], Keys(RowTimes)]
JobNote: TypeAlias = Annotated[dict[str, Any], Keys((("id", JobId),))]
"""What the trace is told of a job."""
_EventObject: TypeAlias = Annotated[dict[str, Any], Keys((("timestamp", Stamp),))]
JournalEntry: TypeAlias = Annotated[list[Any], Items((JobId, int, _EventObject))]
"""An event as the journal tells it: its job, its place in the eventlog, the event."""
