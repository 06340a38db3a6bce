"""RFC 33, Request Validation: which queue a new job goes to, and whether it may.

Whether the queue exists, takes jobs, and has the user among those who may submit; what it adds to
the jobspec. Names and groups of a user are asked of the user database, which may take its time: the
job waits, and no other. The instance owner is a user like others. Left out: limits, which are
plugins'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from flux_trio.config import Assignment, NoQueue, access_refusal, assign
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.formats import FormatError


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


class Entrance:
    """Decides on jobs that come."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._waiting: dict[int, list[Callable[[User], None]]] = {}  # by userid
        self._actions: list[FindUser] = []  # of this turn

    def decide(
        self, userid: int, system: Mapping[str, Any], then: Callable[[Admission], None]
    ) -> None:
        """Tell `then` about a job with these `attributes.system`, at once if it can be."""
        assignment = self._assign(system, then)
        if assignment is None:
            return
        if assignment.policy.access.is_open:
            then(Admission(assignment.updates))
        else:
            self._ask(userid, partial(self._decide_for, userid, system, then))

    @property
    def is_asking(self) -> bool:
        """Whether the user database has not answered yet."""
        return bool(self._waiting)

    def found(self, message: UserFound) -> None:
        """The user database has answered."""
        for then in self._waiting.pop(message.userid, ()):
            then(message.user)

    def take_actions(self) -> list[FindUser]:
        """The questions of this turn."""
        actions, self._actions = self._actions, []
        return actions

    def _ask(self, userid: int, then: Callable[[User], None]) -> None:
        if userid not in self._waiting:
            self._actions.append(FindUser(userid))
        self._waiting.setdefault(userid, []).append(then)

    def _assign(
        self, system: Mapping[str, Any], then: Callable[[Admission], None]
    ) -> Assignment | None:
        """The job's queue; None when `then` has been told why it has none."""
        try:
            assignment = assign(self._queues.config, system)
        except (NoQueue, FormatError) as error:
            then(Admission(refusal=str(error)))
            return None
        refusal = self._queues.refusal(assignment.queue)
        if refusal is not None:
            then(Admission(refusal=refusal))
            return None
        return assignment

    def _decide_for(
        self,
        userid: int,
        system: Mapping[str, Any],
        then: Callable[[Admission], None],
        user: User,
    ) -> None:
        """By the configuration of now, which may be another than when the user was asked for."""
        assignment = self._assign(system, then)
        if assignment is not None:
            config = self._queues.config
            refusal = access_refusal(config, assignment.queue, userid, user.name, user.groups)
            then(Admission(assignment.updates, refusal))
