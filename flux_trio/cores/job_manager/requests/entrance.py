"""RFC 33, Request Validation: which queue a new job goes to, and whether it may.

Whether the queue exists, takes jobs, and has the user among those who may submit; what it adds to
the jobspec. Names and groups of a user are asked of the user database, which may take its time: the
job waits, and no other. The instance owner is a user like others. Left out: limits, which are
plugins'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from flux_trio.config import Assignment, NoQueue, access_refusal, assign
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.state import Part
from flux_trio.formats import FormatError

ComerT = TypeVar("ComerT")


class User(msgspec.Struct, frozen=True):
    """What the user database knows of a user id; `name` is None for one that it does not know."""

    name: str | None = None
    groups: frozenset[str] = frozenset()


class FindUser(msgspec.Struct, frozen=True):
    """Action: ask the user database."""

    userid: int


class UserFound(msgspec.Struct, frozen=True):
    """Input: its answer."""

    userid: int
    user: User


class Admission(msgspec.Struct, frozen=True, gc=False):
    """`refusal` says to the user why not; otherwise `updates` are the job's jobspec-update."""

    updates: dict[str, Any] = {}
    refusal: str | None = None


class Waiting(msgspec.Struct, Generic[ComerT], frozen=True):
    """A job with these `attributes.system`, whose user is being asked for."""

    comer: ComerT
    system: Mapping[str, Any]


class Entrance(Part, Generic[ComerT]):
    """Decides on jobs that come; `ComerT` is what the one who asks knows them by."""

    waiting: dict[int, list[Waiting[ComerT]]]  # by userid
    actions: list[FindUser]  # of this turn

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.waiting = {}
        self.actions = []

    def decide(self, comer: ComerT, userid: int, system: Mapping[str, Any]) -> Admission | None:
        """What is decided on a job with these `attributes.system`.

        Returns None when its user must be asked for: then `found` has the decision.
        """
        assignment = self._assign(system)
        if isinstance(assignment, Admission):
            return assignment
        if assignment.policy.access.is_open:
            return Admission(assignment.updates)
        if userid not in self.waiting:
            self.actions.append(FindUser(userid))
        self.waiting.setdefault(userid, []).append(Waiting(comer, system))
        return None

    @property
    def is_asking(self) -> bool:
        """Whether the user database has not answered yet."""
        return bool(self.waiting)

    def found(self, message: UserFound) -> list[tuple[ComerT, Admission]]:
        """The user database has answered: what is decided on the user's jobs, in order."""
        waiting = self.waiting.pop(message.userid, [])
        return [(each.comer, self._decide_for(message, each.system)) for each in waiting]

    def take_actions(self) -> list[FindUser]:
        """The questions of this turn."""
        actions, self.actions = self.actions, []
        return actions

    def _assign(self, system: Mapping[str, Any]) -> Assignment | Admission:
        """The job's queue, or why it has none."""
        try:
            assignment = assign(self._queues.config, system)
        except (NoQueue, FormatError) as error:
            return Admission(refusal=str(error))
        refusal = self._queues.refusal(assignment.queue)
        return assignment if refusal is None else Admission(refusal=refusal)

    def _decide_for(self, found: UserFound, system: Mapping[str, Any]) -> Admission:
        """By the configuration of now, which may be another than when the user was asked for."""
        assignment = self._assign(system)
        if isinstance(assignment, Admission):
            return assignment
        user, config = found.user, self._queues.config
        refusal = access_refusal(config, assignment.queue, found.userid, user.name, user.groups)
        return Admission(assignment.updates, refusal)
