"""What the kvs does while its disk is full (ENOSPC): it holds commits in order, and tries again.

The first commit is tried again once a second, while reads go on. A commit that leads to more room,
such as a purge or a cancel, lets the store use the room that is set aside, once; until that room is
kept again, commits that ask not to wait are refused. A commit that asks not to wait is
refused at once. The kvs tells the job manager why commits wait, and `queue status` shows it. It
also tells how much of the disk is free, since guests have to leave some of it. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from flux_trio.cores.kvs.held_requests import NO_ROOM, Commit, Held, Reading, Round, Waiting
from flux_trio.cores.kvs.ops import KvsOutbox
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import rfc33
from flux_trio.messages import Errno, Level, Request, respond_error, topics
from flux_trio.messages.types import NORESPONSE

ROUND_OPS_MAX: Final = 4096  # a round takes no commit beyond it: about 0.02 s of disk
RETRY_S: Final = 1.0  # between two tries
RETRY_TIMER: Final = "retry"
LAST_ROOM: Final = "no room: the disk was full, and the room that was set aside is in use"


class DiskRoom(Part):
    """The commits that are held, and when they are tried again."""

    held: Held
    disk_free: int | None  # bytes, when the store said it last
    is_last: bool  # the room that is set aside was given away

    def __init__(self, outbox: KvsOutbox) -> None:
        self._outbox = outbox
        self.held = Held()
        self.disk_free = None
        self.is_last = False

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell a job manager that begins."""
        return bool(self.held.reason) or self.disk_free is not None

    def retry(self) -> None:
        """Try the held commits in the next round: the retry timer has fired."""
        self._outbox.fired(RETRY_TIMER)
        self.held.is_due = bool(self.held.reason)

    def met_full_disk(self, work: Round, text: str, queue: deque[Waiting]) -> deque[Waiting]:
        """Hold the commits of `work` and try again later; refuse those that do not wait.

        When the disk has just become full, the commits of `queue` are held, too. Returns the rest
        of `queue`.
        """
        held = self.held
        is_first = not held.reason
        if is_first:
            held.reason, held.since = f"no room for commits: {text}", self._outbox.now
            self._outbox.send(Log(Level.CRIT, f"{held.reason}; trying again every second"))
            self.report()
        held.put_back(work, [commit for commit in work.commits if self._waits(commit)])
        for commit in held.pop_impatient():
            self._waits(commit)
        held.ops_max = 1
        self._outbox.set_timer(RETRY_TIMER, self._outbox.now + RETRY_S)
        return self._sorted_out(queue) if is_first else queue

    def _sorted_out(self, queue: Iterable[Waiting]) -> deque[Waiting]:
        going_on: deque[Waiting] = deque()
        for waiting in queue:
            if not isinstance(waiting, Commit):
                if not self.hold_read(waiting):
                    going_on.append(waiting)
            elif self._waits(waiting):
                self.held.keep(waiting)
        return going_on

    def hold_read(self, read: Reading) -> bool:
        """Hold `read` if it must see a commit that is held; return whether it must."""
        if not self.held.concerns(read):
            return False
        self.held.keep(read)
        return True

    def _waits(self, commit: Commit) -> bool:
        """Return whether `commit` may be held; refuse it otherwise."""
        if not commit.wait:
            self._outbox.send(respond_error(commit.request, Errno.ENOSPC, NO_ROOM))
        return commit.wait

    def stored(self) -> None:
        """Go on with held commits, then with all others: commits are stored again."""
        held = self.held
        if held.queue:
            held.is_due, held.ops_max = True, page_size(ROUND_OPS_MAX)
            return
        waited_s = self._outbox.now - held.since
        self._outbox.send(Log(Level.NOTICE, f"there is room again, after {waited_s:.0f} s"))
        self.held = Held()
        self.report()

    def pop_all(self) -> list[Waiting]:
        """Return everything that is held; from then on no commit is held."""
        held, self.held = [*self.held.queue], Held()
        return held

    def report(self) -> None:
        """Tell the job manager why jobs wait, and how much of the disk is free; it may be away."""
        told = rfc33.HINDRANCE.write(rfc33.Hindrance(self.held.reason, self.disk_free))
        self._outbox.send(Request(topics.JOB_HINDRANCE, told, flags=NORESPONSE))
