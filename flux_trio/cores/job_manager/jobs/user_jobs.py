"""How many active jobs each user has, and how many bytes of jobspecs they have together."""

from __future__ import annotations

from collections.abc import Collection


class UserJobs:
    """Counts the jobs of everybody but the instance owner, who has no limit."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._sizes: dict[int, dict[int, int]] = {}  # userid → job id → bytes of its jobspec
        self._totals: dict[int, int] = {}  # userid → the sum of those

    def of(self, userid: int) -> tuple[int, int]:
        """The number of active jobs of a user, and the bytes of their jobspecs."""
        return len(self._sizes.get(userid, ())), self._totals.get(userid, 0)

    def jobids(self, userid: int) -> Collection[int]:
        """The active jobs of a user."""
        return self._sizes.get(userid, {}).keys()

    def came(self, userid: int, jobid: int, size: int) -> None:
        """A job is active; `size` is in bytes of its jobspec as JSON, without the environment."""
        if userid != self._owner:
            self._sizes.setdefault(userid, {})[jobid] = size
            self._totals[userid] = self._totals.get(userid, 0) + size

    def went(self, userid: int, jobid: int) -> None:
        """It is active no more."""
        if userid != self._owner:
            sizes = self._sizes[userid]
            self._totals[userid] -= sizes.pop(jobid)
            if not sizes:
                del self._sizes[userid], self._totals[userid]
