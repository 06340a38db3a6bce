"""What waits in the kvs: requests that wait for the store, and those that wait for room. Pure.

When the disk is full, commits are not refused: they are held here, in order, and tried again. A
read waits with them only if its sender committed something there that it may be about, so that a
sender still sees what it committed before; all other reads go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from flux_trio.cores.kvs.ops import Op, Page, Put, Unlink
from flux_trio.cores.kvs.watches import Watch
from flux_trio.formats.meanings import KvsKey, Stamp
from flux_trio.messages import Errno, FluxError, Request, topics, without_response

HELD_BYTES_MAX: Final = 64 << 20
"""Bytes of keys and texts that may wait for room. When they are full, further commits are refused
with ENOSPC, although their senders would wait: a sender that cannot go on then ends, and nothing
that it acknowledged is lost. The commits that were under way when the disk filled are held in any
case."""

NO_ROOM: Final = "no room: the disk is full"
"""For those who asked; the log and `queue status` say more."""

ROUND_BYTES_MAX: Final = 4 << 20
"""Where a round stops taking in commits, in bytes: a small commit waits for no more than that, and
not for all that was committed before it."""

PROBE: Final[tuple[Op, ...]] = (Put("kvs-room", " " * 16_384), Unlink("kvs-room"))
"""What is written when no commit waits, to see whether there is room; it leaves nothing behind."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit; one that does not `wait` is refused while there is no room."""

    request: Request
    ops: list[Op]
    nbytes: int  # of its keys and texts in UTF-8
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """A lookup, or a listing."""

    request: Request
    names: list[KvsKey]  # keys, or the prefix of a listing or count
    chars_max: int = 0  # where the answer to a lookup of many keys ends; 0: nowhere


@dataclass(frozen=True, slots=True)
class PageAsked:
    request: Request
    page: Page


Reading: TypeAlias = Read | PageAsked | Watch
Waiting: TypeAlias = Commit | Reading


@dataclass(slots=True)
class Round:
    """What the store is doing; `commits` is emptied once they are answered."""

    commits: list[Commit] = field(default_factory=list)
    lookups: list[Read] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    listings: list[Read] = field(default_factory=list)
    pages: list[PageAsked] = field(default_factory=list)
    counts: list[Read] = field(default_factory=list)
    postponed: list[Reading] = field(default_factory=list)  # not to be answered by this round
    n_ops: int = 0
    nbytes: int = 0  # of its commits
    gone: set[str] = field(default_factory=set)  # senders that left while it was under way
    is_probe: bool = False  # it writes only to see whether there is room

    def take_from(self, queue: deque[Waiting], ops_max: int) -> None:
        """Take up all before the first commit whose sender reads first: that read must miss it."""
        readers: set[str] = set()
        while queue:
            waiting = queue[0]
            if isinstance(waiting, Commit):
                is_full = self.n_ops >= ops_max or self.nbytes >= ROUND_BYTES_MAX
                if is_full or waiting.request.sender in readers:
                    break
                self.commits.append(waiting)
                self.n_ops += len(waiting.ops)
                self.nbytes += waiting.nbytes
            else:
                readers.add(waiting.request.sender)
                if isinstance(waiting, Watch):
                    self.watches.append(waiting)
                elif isinstance(waiting, PageAsked):
                    self.pages.append(waiting)
                elif waiting.request.topic == topics.KVS_DIR:
                    self.listings.append(waiting)
                elif waiting.request.topic == topics.KVS_COUNT:
                    self.counts.append(waiting)
                else:
                    self.lookups.append(waiting)
            queue.popleft()

    @property
    def reads(self) -> list[Reading]:
        return [*self.lookups, *self.watches, *self.listings, *self.pages, *self.counts]

    @property
    def ops(self) -> list[Op]:
        """Everything that it writes."""
        return [*PROBE] if self.is_probe else [op for commit in self.commits for op in commit.ops]

    def answers(self, read: Reading) -> bool:
        """Whether `read` is answered at the end: no later round does it, its sender is there."""
        is_there = read.request.sender not in self.gone
        return is_there and not any(read is each for each in self.postponed)

    def leave(self, sender: str) -> None:
        """Answer nothing to `sender`, which is gone."""
        self.gone.add(sender)
        silent = without_answers(self.commits, sender)
        self.commits = [each for each in silent if isinstance(each, Commit)]


class Held:
    """The commits that wait for room, and the reads that wait for those."""

    since: Stamp
    queue: deque[Waiting]
    _written: dict[str, set[KvsKey]]

    def __init__(self) -> None:
        self.reason = ""  # why there is no room, in the store's words; "" while there is
        self.since = 0.0  # of `reason`, seconds since the Unix epoch
        self.is_due = False  # to be tried now
        self.ops_max = 1  # of the next try: the first commit alone, more once that was stored
        self.nbytes = 0
        self.queue = deque()  # bounded by HELD_BYTES_MAX and the senders' reads
        self._written = {}  # keys of commits by sender, since the disk is full

    def hold(self, commit: Commit) -> None:
        """Keep a new commit. Raises FluxError(ENOSPC) when it does not wait, or too much does."""
        if not commit.wait:
            raise FluxError(Errno.ENOSPC, NO_ROOM)
        if self.nbytes + commit.nbytes > HELD_BYTES_MAX:
            text = f"{NO_ROOM}, {self.nbytes} bytes wait already"
            raise FluxError(Errno.ENOSPC, text)
        self.keep(commit)

    def hold_read(self, read: Reading) -> None:
        """Keep a read that concerns a commit here."""
        self.queue.append(read)

    def put_back(self, work: Round, commits: list[Commit]) -> None:
        """Keep, before all others, the `commits` that `work` tried in vain.

        Reads of `work` that must see one of them are postponed.
        """
        for commit in commits:
            self._count(commit)
        work.postponed = [read for read in work.reads if self.concerns(read)]
        self.queue.extendleft(reversed([*commits, *work.postponed]))

    def keep(self, commit: Commit) -> None:
        """Keep a commit that was under way when the disk filled."""
        self.queue.append(commit)
        self._count(commit)

    def leave(self, sender: str) -> None:
        """Answer nothing to `sender`, which is gone."""
        self.queue = without_answers(self.queue, sender)

    def concerns(self, read: Reading) -> bool:
        """Whether the sender of `read` has a commit here that may change what it reads."""
        written = self._written.get(read.request.sender)
        if written is None:
            return False
        if isinstance(read, PageAsked) or read.request.topic in (topics.KVS_DIR, topics.KVS_COUNT):
            return True
        names = [read.key] if isinstance(read, Watch) else read.names
        return any(above in written for name in names for above in _and_above(name))

    def take(self, work: Round) -> None:
        """Move into `work` what is to be tried now."""
        work.is_probe = not self.queue
        work.take_from(self.queue, self.ops_max)
        self.nbytes -= sum(commit.nbytes for commit in work.commits)
        self.is_due = False

    def _count(self, commit: Commit) -> None:
        self.nbytes += commit.nbytes
        self._written.setdefault(commit.request.sender, set()).update(op.key for op in commit.ops)


def without_answers(queue: Iterable[Waiting], gone: str) -> deque[Waiting]:
    """`queue` without the reads of the sender `gone`; its commits are stored and not answered.

    A service that comes back has the same name: it must see what was committed in its name, in the
    order of that, and no answer that is not its own.
    """
    return deque(
        replace(each, request=without_response(each.request))
        if isinstance(each, Commit) and each.request.sender == gone
        else each
        for each in queue
        if isinstance(each, Commit) or each.request.sender != gone
    )


def _and_above(key: str) -> Iterable[str]:
    """The key, and the keys that it is below: an unlink of one of those removes it."""
    names = key.split(".")
    return (".".join(names[:n]) for n in range(len(names), 0, -1))
