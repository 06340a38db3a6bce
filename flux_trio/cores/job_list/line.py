"""Whose list is made next: the lists of a user take turns, a slice each. Pure.

So a list of a few jobs does not wait for one of a hundred thousand. A list that has begun takes
memory, so only the first `AT_ONCE_MAX` of a user have turns; the others wait in order. If the rows
that they hold for one response are long together, the longest goes on until it is sent.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flux_trio.cores.job_list.one_list import Listing
from flux_trio.cores.state import Part

AT_ONCE_MAX: Final = 8  # lists of a user that have begun, beside those that wait for credit
HELD_BYTES_MAX: Final = 12 << 20  # of rows, as JSON, of these lists together; and the longest list


class Line(Part):
    """The lists of each user, in the order in which they are made."""

    of_user: dict[int, deque[Listing]]  # the first has its turn

    def __init__(self) -> None:
        self.of_user = {}

    def join(self, listing: Listing) -> bool:
        """Put `listing` after the others of its user; return whether there is no other."""
        lists = self.of_user.setdefault(listing.request.userid, deque())
        listing.is_queued = True
        lists.append(listing)
        return len(lists) == 1

    def first(self, userid: int) -> Listing | None:
        """Return the list that has its turn; None if the user has no list."""
        lists = self.of_user.get(userid)
        return lists[0] if lists else None

    def leave(self, userid: int) -> bool:
        """Remove the list that has its turn; return whether there is another."""
        lists = self.of_user[userid]
        lists.popleft().is_queued = False
        if not lists:
            del self.of_user[userid]
        return bool(lists)

    def end_turn(self, userid: int) -> None:
        """End the turn of a list that has had a slice."""
        lists = self.of_user[userid]
        first = lists.popleft()
        lists.insert(min(AT_ONCE_MAX - 1, len(lists)), first)
        begun = range(min(AT_ONCE_MAX, len(lists)))
        if sum(lists[place].nbytes for place in begun) > HELD_BYTES_MAX:
            longest = max(begun, key=lambda place: lists[place].nbytes)
            listing = lists[longest]
            del lists[longest]
            lists.appendleft(listing)
