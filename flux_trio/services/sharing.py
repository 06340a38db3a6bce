"""How much of a service one user may have at once, so that there is some for the others. Pure.

The instance owner is a user like the others here: nobody uses up what another one has.
"""

from __future__ import annotations

from flux_trio.messages import Errno, FluxError


class Allowance:
    """Counts, for each user, how many of one thing are open; `most` is each user's limit.

    `what` names the thing in the error, in the plural.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._open: dict[int, int] = {}  # by userid; nobody has 0

    def take(self, userid: int) -> None:
        """One more is open. Raises FluxError(EAGAIN), which names the limit, and counts nothing."""
        count = self._open.get(userid, 0)
        if count >= self._most:
            text = f"user {userid} has {count} {self._what} open, the most that one user may have"
            raise FluxError(Errno.EAGAIN, text)
        self._open[userid] = count + 1

    def give_back(self, userid: int) -> None:
        """One of them has ended."""
        self._open[userid] -= 1
        if not self._open[userid]:
            del self._open[userid]
