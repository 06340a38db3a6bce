"""RFC 33, Request Validation: the queue of a new job, and whether the queue accepts the job.

The queue must exist and accept jobs, and its policy must allow the user; it may add to the jobspec.
The user database has the names and groups of a user. It may take long to answer; only the jobs of
that user wait for it. The instance owner is a user like others. Left out: limits, which plugins
check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from flux_trio.config import Assignment, NoQueue, access_refusal
from flux_trio.cores.job_manager.calls import FindUser, UserFound
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.state import Part
from flux_trio.formats import FormatError

CandidateT = TypeVar("CandidateT")


class Admission(msgspec.Struct, frozen=True, gc=False):
    """A decision: `refusal` says why not; otherwise `updates` are the job's jobspec-update."""

    updates: dict[str, Any] = {}
    refusal: str | None = None


class Waiting(msgspec.Struct, Generic[CandidateT], frozen=True):
    """A job with these `attributes.system`, which waits for the user database."""

    candidate: CandidateT
    system: Mapping[str, Any]


class Admissions(Part, Generic[CandidateT]):
    """Decides on new jobs; `CandidateT` is the type by which the caller knows a job."""

    waiting: dict[int, list[Waiting[CandidateT]]]  # by userid
    actions: list[FindUser]  # of this turn

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.waiting = {}
        self.actions = []

    def decide(
        self, candidate: CandidateT, userid: int, system: Mapping[str, Any]
    ) -> Admission | None:
        """Return the decision on a job with these `attributes.system`.

        Returns None if the user database must be asked: then `found` returns the decision.
        """
        assignment = self._assign(system)
        if isinstance(assignment, Admission):
            return assignment
        if assignment.policy.access.is_open:
            return Admission(assignment.updates)
        if userid not in self.waiting:
            self.actions.append(FindUser(userid))
        self.waiting.setdefault(userid, []).append(Waiting(candidate, system))
        return None

    @property
    def is_asking(self) -> bool:
        """Return whether an answer of the user database is due."""
        return bool(self.waiting)

    def found(self, message: UserFound) -> list[tuple[CandidateT, Admission]]:
        """Take the user database's answer; return the decisions on the user's jobs."""
        waiting = self.waiting.pop(message.userid, [])
        return [(each.candidate, self._decide_for(message, each.system)) for each in waiting]

    def pop_actions(self) -> list[FindUser]:
        """Return the questions of this turn."""
        actions, self.actions = self.actions, []
        return actions

    def _assign(self, system: Mapping[str, Any]) -> Assignment | Admission:
        """Return the job's queue, or a refusal."""
        try:
            assignment = self._queues.assign(system)
        except (NoQueue, FormatError) as error:
            return Admission(refusal=str(error))
        refusal = self._queues.refusal(assignment.queue)
        return assignment if refusal is None else Admission(refusal=refusal)

    def _decide_for(self, found: UserFound, system: Mapping[str, Any]) -> Admission:
        """Return the decision by the configuration, which may have changed since `decide`."""
        assignment = self._assign(system)
        if isinstance(assignment, Admission):
            return assignment
        user, config = found.user, self._queues.config
        refusal = access_refusal(config, assignment.queue, found.userid, user.name, user.groups)
        return Admission(assignment.updates, refusal)
