"""The users of a workload: those of its log, or made-up ones.

As in real workloads, a few made-up users submit many jobs and many submit few: the n-th user
submits 1/n as many jobs as the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from flux_trio.cores.job_manager.calls import User
from flux_trio.sim.log_rows import WorkloadJob

FIRST_USERID: Final = 1001


def deal_users(jobs: Sequence[WorkloadJob], count: int, seed: int) -> list[WorkloadJob]:
    """Return the jobs with random users user1 to user`count`; a seed always gives the same."""
    names = [f"user{place}" for place in range(1, count + 1)]
    weights = [1 / place for place in range(1, count + 1)]
    drawn = Random(seed).choices(names, weights, k=len(jobs))
    return [replace(job, user=user) for job, user in zip(jobs, drawn, strict=True)]


def userids_of(jobs: Iterable[WorkloadJob]) -> dict[str, int]:
    """Return userids: a numeric name is its own id; others count up from 1001, shortest first."""
    names = {job.user for job in jobs if job.user is not None}
    numbers = {name: int(name) for name in names if name.isascii() and name.isdigit()}
    taken = set(numbers.values())
    free = (userid for userid in itertools.count(FIRST_USERID) if userid not in taken)
    ordered = sorted(names - set(numbers), key=lambda name: (len(name), name))
    return numbers | dict(zip(ordered, free, strict=False))


class UserBook:
    """The user database of a simulation: its users, each in a group of the same name."""

    def __init__(self, userids: Mapping[str, int]) -> None:
        self._names = {userid: name for name, userid in userids.items()}

    def find(self, userid: int) -> User:
        """Return the user of this id; without a name if there is no such user."""
        name = self._names.get(userid)
        return User() if name is None else User(name, frozenset({name}))

    async def found(self, userid: int) -> User:
        """Return the same, for an instance."""
        return self.find(userid)
