"""Jobspecs in little memory: each is kept as its difference from a similar one of the same user.

Jobs mostly wait, and their jobspecs are seldom read. The difference is made by zlib (RFC 1951, with
the similar jobspec as its dictionary); equal jobspecs are one object.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from flux_trio.cores.job_index import name_mark
from flux_trio.cores.state import Part
from flux_trio.formats import COSTING, SHORT_MAX, cached_for_short, costs_of, document

_WINDOW_BITS: Final = -13  # 8 kB, about two jobspecs; negative: without a header
_MEMORY_LEVEL: Final = 4
_LEVEL: Final = 1  # of 9: higher levels are slower and save little more

GAIN_MIN: Final = 2
"""A difference must be smaller by this factor; else the jobspec is kept whole for later ones."""


SHARED_MAX: Final = 256
"""Different jobspecs that may come between two equal ones."""

TEXTS_MAX: Final = 64
"""Jobspecs that are kept whole for a while: a job's is read several times in a state."""


_MARK_BYTES: Final = 4
"""A mark is a CRC-32. Stored in one object with the difference, it saves 35 bytes a job."""


class Whole(msgspec.Struct, frozen=True, gc=False):
    """A jobspec as JSON, from which differences are made."""

    text: bytes


class KeptJobspec(msgspec.Struct, frozen=True, gc=False):
    """One jobspec, as JSON."""

    like: Whole
    packed: bytes  # the mark of its name, then the difference from `like`, if there is one
    queue: str | None  # the queue in it
    cost: int  # while its job is active: see `formats.jobspec_cost`

    @property
    def name(self) -> int:
        """Return the mark of its name: see `job_index`."""
        return int.from_bytes(self.packed[:_MARK_BYTES], "big")

    @property
    def nbytes(self) -> int:
        """Return the bytes that it keeps, with those that it may share with other jobspecs."""
        return len(self.like.text) + len(self.packed)

    @property
    def text(self) -> bytes:
        is_like = len(self.packed) == _MARK_BYTES
        return self.like.text if is_like else _applied(self.like.text, self.packed)

    @property
    def json(self) -> dict[str, Any]:
        """Return the jobspec decoded; callers share it and must not change it."""
        return _decoded(self.text)


class Jobspecs(Part):
    """For each user, one whole jobspec from which differences are made."""

    like: dict[int, Whole]  # by userid

    def __init__(self) -> None:
        self.like = {}
        self._shared = lru_cache(maxsize=SHARED_MAX)(self._keep)  # derived: equal ones, one object

    def keep(self, userid: int, jobspec: bytes) -> KeptJobspec:
        """Keep `jobspec`, JSON, of a job of the user; short ones that are equal are one object."""
        is_short = len(jobspec) <= SHORT_MAX
        return self._shared(userid, jobspec) if is_short else self._keep(userid, jobspec)

    def _keep(self, userid: int, jobspec: bytes) -> KeptJobspec:
        (queue, cost), mark = _read(jobspec), name_mark(jobspec).to_bytes(_MARK_BYTES, "big")
        like = self.like.get(userid)
        if like is not None:
            difference = _difference(jobspec, like.text) if jobspec != like.text else b""
            if len(difference) * GAIN_MIN <= len(jobspec):
                return KeptJobspec(like, mark + difference, queue, cost)
        like = self.like[userid] = Whole(jobspec)
        return KeptJobspec(like, mark, queue, cost)


def system_of(jobspec: Mapping[str, Any]) -> dict[str, Any]:
    """Return `attributes.system`; empty for an invalid jobspec, which ingest refuses."""
    attributes = jobspec.get("attributes")
    system = attributes.get("system") if isinstance(attributes, dict) else None
    return system if isinstance(system, dict) else {}


class _System(msgspec.Struct, frozen=True):
    queue: str | None = None
    constraints: Any = None
    dependencies: Any = None


class _Attributes(msgspec.Struct, frozen=True):
    system: _System = _System()


class _Jobspec(msgspec.Struct):
    attributes: _Attributes = _Attributes()


def _read(jobspec: bytes) -> tuple[str | None, int]:
    """Return the queue and the cost; None and 0 for an invalid jobspec, which ingest refuses."""
    try:
        system = msgspec.json.decode(jobspec, type=_Jobspec).attributes.system
    except msgspec.MsgspecError:
        return None, 0
    read = {key: value for key in COSTING if (value := getattr(system, key)) is not None}
    cost = sum(costs_of(read).values()) if read else 0
    return None if system.queue is None else sys.intern(system.queue), cost


@lru_cache(maxsize=TEXTS_MAX)
def _applied(like: bytes, packed: bytes) -> bytes:
    return zlib.decompressobj(_WINDOW_BITS, like).decompress(packed[_MARK_BYTES:])


def _decode(text: bytes) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


_decoded = cached_for_short(_decode, maxsize=TEXTS_MAX)


def _difference(jobspec: bytes, like: bytes) -> bytes:
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zdict=like)
    return squeeze.compress(jobspec) + squeeze.flush()


def redacted(jobspec: dict[str, Any]) -> bytes:
    """Return a jobspec as JSON, without the environment, which only shells need (RFC 27, Alloc)."""
    system = system_of(jobspec)
    if "environment" in system:
        rest = {key: value for key, value in system.items() if key != "environment"}
        jobspec = jobspec | {"attributes": jobspec["attributes"] | {"system": rest}}
    return msgspec.json.encode(jobspec)


def redacted_text(jobspec: str) -> bytes:
    """Return the same for a jobspec that is stored. Raises FormatError if it is no JSON object."""
    return redacted(document(jobspec.encode()))
