"""Why a job waits, and why it has its priority: `job-manager.explain` and `sched.explain`.

The payloads are our own. A scheduler need not have the method. Nothing is kept for an answer: the
parties look at the job when they are asked.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from flux_trio.editions.codec import Codec, as_payload, codec
from flux_trio.formats.meanings import JobId
from flux_trio.messages import expect_payload


class Explain(msgspec.Struct, frozen=True):
    """The job-manager.explain and sched.explain requests."""

    id: JobId


class Holder(msgspec.Struct, frozen=True):
    """A job that holds resources; `end` is the latest end, None if it is not known."""

    id: JobId
    end: float | None


class Place(msgspec.Struct, frozen=True):
    """The sched.explain response. Times are seconds since the Unix epoch.

    `place` is the place in the queue of `pending` requests, from 1; 0 if the scheduler has no
    request for the job. `ahead` has the jobs next to it that come first, the nearest one last.
    `holders` has jobs with resources that it could use, the first to end first. Both lists are cut.
    `start` is the time at which it starts if all jobs last to their ends, None without an estimate.
    """

    id: JobId
    policy: str
    place: int
    pending: int
    reason: str
    ahead: list[JobId] = []
    holders: list[Holder] = []
    start: float | None = None


class PluginReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a plugin says when it is asked again: a priority, None if it sets none, and a text.

    `unavailable`: it does not know the priority yet. `error`: it failed.
    """

    plugin: str
    priority: int | None = None
    unavailable: bool = False
    text: str = ""
    error: str = ""

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.error:
            return self.error
        said = "the priority is unavailable" if self.unavailable else self.priority
        what = f"says {said}" if self.unavailable or self.priority is not None else ""
        return f"{self.plugin} {what}".rstrip() + (f": {self.text}" if self.text else "")


class Explained(msgspec.Struct, frozen=True):
    """The job-manager.explain response.

    `said` has the plugins in the order in which they are asked: the last priority counts, unless
    the urgency is 0 or 31. `waits` has a sentence for each thing that the job waits for, as far as
    the job manager knows. `sched` is the answer of the scheduler, None if it was not asked or has
    none. A guest is not told the ids of jobs of others.
    """

    id: JobId
    state: str
    urgency: int
    priority: int
    said: list[PluginReason]
    waits: list[str]
    sched: Place | None = None


def _nested(shape: type[Any]) -> Codec[Any]:
    return Codec(as_payload, partial(expect_payload, shape=shape))


EXPLAIN: Final = codec(Explain)
PLACE: Final[Codec[Place]] = _nested(Place)
EXPLAINED: Final[Codec[Explained]] = _nested(Explained)
