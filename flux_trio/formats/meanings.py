"""Types that say what a number means: a job, an open request, a moment. Pure.

For a type checker and for msgspec they are `int`, `float` and `str`. `cores/fingerprint.py` reads
what they say, and finds by it that two states differ in nothing but their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeAlias, TypedDict


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers of one kind, of which only equality and order matter; 0 stands for no number."""

    kind: str


class Meaning(Enum):
    """What else a value may mean."""

    TIME = "a time; a decision depends on how far it is from now, or from another time"
    NOW = "the time of this turn, from which the others are counted"
    LAST = "where a numbering has got to; it decides nothing but the numbers that follow"
    PEER = "the sender whose matchtags stand beside or below it"
    JSON = "a value of JSON that nobody changes: equal ones are not told apart"
    KVS_KEY = "a key of the kvs; job ids and times are spelled out in it"
    KVS_TEXT = "what the kvs has, or is to have, under the key of the same object"


@dataclass(frozen=True, slots=True)
class Items:
    """The types of a list's items, each in its place."""

    types: tuple[Any, ...]


JobId: TypeAlias = Annotated[int, Number("job")]
Matchtag: TypeAlias = Annotated[int, Number("matchtag")]
Stamp: TypeAlias = Annotated[float, Number("stamp")]
"""A time of which only the order matters. Seconds since the Unix epoch, as all times here."""

Time: TypeAlias = Annotated[float, Meaning.TIME]
Now: TypeAlias = Annotated[float, Meaning.NOW]
Last: TypeAlias = Annotated[int, Meaning.LAST]
Peer: TypeAlias = Annotated[str, Meaning.PEER]
JsonObject: TypeAlias = Annotated[dict[str, Any], Meaning.JSON]
KvsKey: TypeAlias = Annotated[str, Meaning.KVS_KEY]
KvsText: TypeAlias = Annotated[str, Meaning.KVS_TEXT]
KvsOp: TypeAlias = Annotated[list[str], Items((str, KvsKey, KvsText))]
"""One change of the kvs as a message carries it: ["put", key, text]."""


class RTimes(TypedDict):
    """The times in an R object's key `execution` (RFC 20)."""

    starttime: Time
    expiration: Time


class RObject(TypedDict):
    """What has a meaning in a decoded R object."""

    execution: RTimes
