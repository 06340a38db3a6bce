"""Jobspecs kept small: those of one user are alike, so each is kept as what differs from another.

Most jobs only wait, and nobody looks at their jobspecs meanwhile. What differs is found by zlib
(RFC 1951, with the other jobspec as its dictionary); equal jobspecs are one object.
"""

from __future__ import annotations

import sys
import zlib
from functools import lru_cache
from typing import Any, Final

import msgspec

from flux_trio.cores.job_index import name_mark
from flux_trio.cores.state import Part

_WINDOW_BITS: Final = -13  # 8 kB: two jobspecs as people write them; negative: without a header
_MEMORY_LEVEL: Final = 4
_LEVEL: Final = 1  # of 9: the others take longer and find little more

GAIN_MIN: Final = 2
"""By that factor what is kept must be smaller; else the jobspec is what the next ones are like."""


SHARED_MAX: Final = 256
"""Different jobspecs that may come between two equal ones."""

TEXTS_MAX: Final = 64
"""Jobspecs that are kept whole for a while: a job's is looked at several times in each state."""


class Whole(msgspec.Struct, frozen=True, gc=False):
    """One jobspec that others are like, as JSON."""

    text: bytes


class KeptJobspec(msgspec.Struct, frozen=True, gc=False):
    """One jobspec, as JSON."""

    like: Whole
    difference: bytes  # from `like`; empty when there is none
    queue: str | None  # what it says of its queue
    name: int  # the mark of its name: see `job_index`

    @property
    def text(self) -> bytes:
        return _applied(self.like.text, self.difference) if self.difference else self.like.text

    @property
    def json(self) -> dict[str, Any]:
        """The same decoded; shared by all who ask, and not to be changed."""
        return _decoded(self.text)


class Jobspecs(Part):
    """What the jobspecs of each user are like: for each one jobspec, kept whole."""

    like: dict[int, Whole]  # by userid

    def __init__(self) -> None:
        self.like = {}
        self.keep = lru_cache(maxsize=SHARED_MAX)(self._keep)  # derived: equal ones are one object

    def _keep(self, userid: int, jobspec: bytes) -> KeptJobspec:
        """A jobspec of a user's job, as JSON."""
        queue, name = _queue_in(jobspec), name_mark(jobspec)
        like = self.like.get(userid)
        if like is not None:
            difference = _difference(jobspec, like.text) if jobspec != like.text else b""
            if len(difference) * GAIN_MIN <= len(jobspec):
                return KeptJobspec(like, difference, queue, name)
        like = self.like[userid] = Whole(jobspec)
        return KeptJobspec(like, b"", queue, name)


class _System(msgspec.Struct, frozen=True):
    queue: str | None = None


class _Attributes(msgspec.Struct, frozen=True):
    system: _System = _System()


class _Jobspec(msgspec.Struct):
    attributes: _Attributes = _Attributes()


def _queue_in(jobspec: bytes) -> str | None:
    """None as well for what is no jobspec: ingest lets none pass."""
    try:
        queue = msgspec.json.decode(jobspec, type=_Jobspec).attributes.system.queue
    except msgspec.MsgspecError:
        return None
    return None if queue is None else sys.intern(queue)


@lru_cache(maxsize=TEXTS_MAX)
def _applied(like: bytes, difference: bytes) -> bytes:
    return zlib.decompressobj(_WINDOW_BITS, like).decompress(difference)


@lru_cache(maxsize=TEXTS_MAX)
def _decoded(text: bytes) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def _difference(jobspec: bytes, like: bytes) -> bytes:
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zdict=like)
    return squeeze.compress(jobspec) + squeeze.flush()
