"""Requests that wait in the kvs: for the store, or for room on the disk. Pure.

When the disk is full, commits are not refused: they are held here, in order, and tried again. A
read waits with them only if one of its sender's commits here may change what it reads, so that a
sender still sees what it has committed; all other reads go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from flux_trio.cores.kvs.ops import Op, Page, Put, TreeAsked, Unlink
from flux_trio.cores.kvs.trees import Place
from flux_trio.cores.kvs.watches import Watch
from flux_trio.cores.streams import StreamKey
from flux_trio.editions.flux_kvs import PRIMARY, namespace_of
from flux_trio.editions.kvs import Guest
from flux_trio.formats.meanings import KvsKey, Stamp
from flux_trio.messages import Errno, FluxError, Request, unanswered

HELD_BYTES_MAX: Final = 64 << 20
"""Bytes of keys and texts that may wait for room. Further commits are refused with ENOSPC, although
their senders would wait: a service that cannot go on then ends, and loses nothing that it has
acknowledged. The commits that were under way when the disk became full are held in any case."""

NO_ROOM: Final = "no room: the disk is full"
"""The text of refusals; the log and `queue status` say more."""

ROUND_BYTES_MAX: Final = 4 << 20
"""Bytes of commits beyond which a round takes no further commit: a small commit need not wait for
more than that."""

KEYS_OF_SENDER_MAX: Final = 8192
"""Keys that one sender reads in a round, beyond which its next reads wait for the next round: reads
of others need not wait for all that one sender has asked for."""

_LISTS: Final = ("dir", "count")
_LISTING_KEYS: Final = 1024  # that a listing counts as; how many it finds is not known before

PROBE: Final[tuple[Op, ...]] = (Put("kvs-room", " " * 16_384), Unlink("kvs-room"))
"""Written to find out whether there is room while no commit waits; it leaves no key."""


class Commit(msgspec.Struct, frozen=True):
    """A commit; without `wait` it is refused while there is no room, unless it `frees` some."""

    request: Request
    ops: list[Op]
    nbytes: int  # of its keys and texts in UTF-8
    wait: bool = True
    frees: bool = False
    namespace: str = ""  # of a commit of flux-core's, whose answer is the root; "" for ours
    guests: list[Guest] = []  # jobs in whose namespaces ours writes

    @property
    def namespaces(self) -> Iterator[str]:
        """The namespaces that count it."""
        yield self.namespace or PRIMARY
        for each in self.guests:
            yield namespace_of(each.id)


class Read(msgspec.Struct, frozen=True):
    """A lookup, or a listing."""

    request: Request
    kind: Literal["lookup", "lookup-all", "dir", "count"]
    names: list[KvsKey]  # keys, or the prefix of a listing or count
    chars_max: int = 0  # the answer ends with the value that goes beyond it; 0: no limit


class PageAsked(msgspec.Struct, frozen=True):
    request: Request
    page: Page


class TreeRead(msgspec.Struct, frozen=True):
    """A lookup of flux-core's, or one for a watch."""

    request: Request
    asked: list[TreeAsked]  # one
    place: Place
    flags: int
    watch: StreamKey | None = None


class FactsRead(msgspec.Struct, frozen=True):
    """A read of what is in the way of the ops of a commit of flux-core's, which becomes a Commit.

    Until then, nothing else of its namespace may be asked so, and its sender sees nothing later,
    but may ask so in namespaces of other jobs.
    """

    request: Request
    asked: list[TreeAsked]  # [] if nothing can be in the way
    namespace: str
    ops: list[Op]
    nbytes: int  # of its keys and texts in UTF-8, as they came


Reading: TypeAlias = Read | PageAsked | Watch | TreeRead | FactsRead
Waiting: TypeAlias = Commit | Reading


class Round(msgspec.Struct):
    """The work that the store is doing; `commits` becomes empty when they are answered."""

    commits: list[Commit] = []
    lookups: list[Read] = []
    watches: list[Watch] = []
    listings: list[Read] = []
    pages: list[PageAsked] = []
    counts: list[Read] = []
    trees: list[TreeRead | FactsRead] = []
    postponed: list[Reading] = []  # a later round answers them
    n_ops: int = 0
    nbytes: int = 0  # of its commits
    gone: set[str] = set()  # senders that have left since it began
    is_probe: bool = False  # it writes PROBE instead of commits
    frees: bool = False  # one of its commits does, or one that waits behind them

    def fill_from(self, queue: deque[Waiting], ops_max: int) -> None:
        """Take requests; those that must wait for the next round stay first in `queue`, in order.

        A commit waits if its sender has a read before it, which must not see the commit, or if
        another commit waits. A read waits if its sender reads KEYS_OF_SENDER_MAX keys already. What
        a sender has asked for after something that waits, waits too. So does
        what would have to see a commit of flux-core's that is only read for now.
        """
        pending: set[str] = set()  # the namespaces of such commits
        asking: set[str] = set()  # the senders of those in namespaces of jobs
        keys: dict[str, int] = {}  # how many each sender reads
        later: list[Waiting] = []
        behind: set[str] = set()  # the senders of `later`
        commit_waits = False
        while queue:
            waiting = queue[0]
            sender = waiting.request.sender
            if isinstance(waiting, Commit):
                if self.n_ops >= ops_max or self.nbytes >= ROUND_BYTES_MAX:
                    break
                waits = commit_waits = commit_waits or sender in keys or sender in behind
            else:
                waits = sender in behind or keys.get(sender, 0) >= KEYS_OF_SENDER_MAX
                if isinstance(waiting, FactsRead):
                    waits = waits or waiting.namespace in pending
                    pending.add(waiting.namespace)
                if not isinstance(waiting, FactsRead) or waiting.namespace == PRIMARY:
                    waits = waits or sender in asking
            queue.popleft()
            if waits:
                later.append(waiting)
                behind.add(sender)
            elif isinstance(waiting, Commit):
                self._add_commit(waiting)
            else:
                keys[sender] = keys.get(sender, 0) + _nkeys(waiting)
                self._add_reading(waiting)
                if isinstance(waiting, FactsRead):
                    (behind if waiting.namespace == PRIMARY else asking).add(sender)
        queue.extendleft(reversed(later))

    def _add_commit(self, commit: Commit) -> None:
        self.commits.append(commit)
        self.n_ops += len(commit.ops)
        self.nbytes += commit.nbytes
        self.frees |= commit.frees

    def _add_reading(self, reading: Reading) -> None:
        if isinstance(reading, Read):  # the most frequent one
            self._add_read(reading)
        elif isinstance(reading, Watch):
            self.watches.append(reading)
        elif isinstance(reading, PageAsked):
            self.pages.append(reading)
        else:
            self.trees.append(reading)

    def _add_read(self, read: Read) -> None:
        if read.kind == "dir":
            self.listings.append(read)
        elif read.kind == "count":
            self.counts.append(read)
        else:
            self.lookups.append(read)

    @property
    def has_reads(self) -> bool:
        """Whether the store reads something in this round."""
        reads = (self.lookups, self.watches, self.listings, self.pages, self.counts, self.trees)
        return any(reads)

    @property
    def reads(self) -> list[Reading]:
        return [
            *self.lookups,
            *self.watches,
            *self.listings,
            *self.pages,
            *self.counts,
            *self.trees,
        ]

    @property
    def ops(self) -> list[Op]:
        return [*PROBE] if self.is_probe else [op for commit in self.commits for op in commit.ops]

    def answers(self, read: Reading) -> bool:
        """Return whether this round answers `read`: not if it is postponed or its sender left."""
        is_there = read.request.sender not in self.gone
        return is_there and not any(read is each for each in self.postponed)

    def leave(self, sender: str) -> None:
        """Send no answers to `sender`, which is gone."""
        self.gone.add(sender)
        silent = without_answers(self.commits, sender)
        self.commits = [each for each in silent if isinstance(each, Commit)]


class Held:
    """The commits that wait for room, and the reads that wait for those."""

    since: Stamp
    queue: deque[Waiting]
    _written: dict[str, set[KvsKey]]

    def __init__(self) -> None:
        self.reason = ""  # why there is no room, in the store's words; "" while there is room
        self.since = 0.0  # of `reason`, seconds since the Unix epoch
        self.is_due = False  # the next round tries them
        self.frees = False  # the next round may use the room that is set aside
        self.has_tried = False  # to use it
        self.ops_max = 1  # of the next try: 1 is the first commit only; more once that is stored
        self.nbytes = 0
        self.queue = deque()  # bounded by HELD_BYTES_MAX and the senders' reads
        self._written = {}  # keys in commits since the disk became full, by sender

    def hold(self, commit: Commit) -> None:
        """Keep a new commit. Raises FluxError(ENOSPC) if it does not wait, or if too much waits.

        One that frees room lets the next try use the room that is set aside, at once and once: all
        commits before it are stored first.
        """
        if commit.frees and not self.has_tried:
            self.has_tried = self.is_due = self.frees = True
        elif not commit.wait:
            raise FluxError(Errno.ENOSPC, NO_ROOM)
        self.check_bytes(commit.nbytes)
        self.keep(commit)

    def check_bytes(self, nbytes: int) -> None:
        """Raises FluxError(ENOSPC) if too much waits for another commit of so many bytes."""
        if self.nbytes + nbytes > HELD_BYTES_MAX:
            text = f"{NO_ROOM}, {self.nbytes} bytes wait already"
            raise FluxError(Errno.ENOSPC, text)

    def put_back(self, work: Round, commits: list[Commit]) -> None:
        """Keep the `commits` that `work` could not store, before all others.

        The reads of `work` that must see one of them are postponed, and those for a commit, which
        comes after them.
        """
        self._count(commits)
        work.postponed = [read for read in work.reads if self.concerns(read)]
        self._count(work.postponed)
        self.queue.extendleft(reversed([*commits, *work.postponed]))

    def keep_first(self, commit: Commit) -> None:
        """Keep a commit whose read was held before all that is here."""
        self.queue.appendleft(commit)
        self._count([commit])

    def keep(self, waiting: Waiting) -> None:
        """Keep what comes after all that is here, or was under way when the disk filled."""
        self.queue.append(waiting)
        self._count([waiting])

    def pop_impatient(self) -> list[Commit]:
        """Remove and return the commits that do not wait: they were here for one try."""
        found = [each for each in self.queue if isinstance(each, Commit) and not each.wait]
        if found:
            self.queue = deque(
                each for each in self.queue if not isinstance(each, Commit) or each.wait
            )
            self.nbytes -= sum(commit.nbytes for commit in found)
        return found

    def leave(self, sender: str) -> None:
        """Send no answers to `sender`, which is gone."""
        self.queue = without_answers(self.queue, sender)

    def concerns(self, read: Reading) -> bool:
        """Return whether the sender of `read` has a commit here that may change what it reads.

        A read for a commit waits as that would: all of a sender's commits are here in order.
        """
        if isinstance(read, FactsRead):
            return bool(self.reason)
        written = self._written.get(read.request.sender)
        if written is None:
            return False
        if isinstance(read, PageAsked) or (isinstance(read, Read) and read.kind in _LISTS):
            return True
        if isinstance(read, TreeRead):
            return True  # it may be about a directory
        names = [read.key] if isinstance(read, Watch) else read.names
        return any(above in written for name in names for above in _and_above(name))

    def move_into(self, work: Round) -> None:
        """Move into `work` the requests that are to be tried now."""
        work.frees, self.frees = self.frees, False
        work.is_probe = not self.queue
        work.fill_from(self.queue, self.ops_max)
        self.nbytes -= sum(each.nbytes for each in _writing([*work.commits, *work.trees]))
        self.is_due = not (work.commits or work.is_probe)  # reads alone do not show room

    def _count(self, waiting: Iterable[Waiting]) -> None:
        for each in _writing(waiting):
            self.nbytes += each.nbytes
            self._written.setdefault(each.request.sender, set()).update(op.key for op in each.ops)


def _writing(waiting: Iterable[Waiting]) -> Iterable[Commit | FactsRead]:
    """Return the commits, and the reads that lead to one."""
    return (each for each in waiting if isinstance(each, Commit | FactsRead))


def without_answers(queue: Iterable[Waiting], gone: str) -> deque[Waiting]:
    """Return `queue` without the reads of the sender `gone`, and with its commits unanswered.

    A service that comes back has the same name as before: it must see the earlier commits of that
    name, in order, and must not get answers to its predecessor's requests.
    """
    return deque(
        msgspec.structs.replace(each, request=unanswered(each.request, gone))
        if isinstance(each, Commit | FactsRead)
        else each
        for each in queue
        if isinstance(each, Commit | FactsRead) or each.request.sender != gone
    )


def _nkeys(read: Reading) -> int:
    """Return about how many keys the store looks at."""
    if isinstance(read, PageAsked):
        return read.page.limit
    if isinstance(read, Read) and read.kind == "dir":
        return _LISTING_KEYS
    if isinstance(read, TreeRead | FactsRead):
        return len(read.asked)
    return len(read.names) if isinstance(read, Read) else 1


def _and_above(key: str) -> Iterable[str]:
    """Return `key` and the keys above it: an unlink of any of them removes it."""
    names = key.split(".")
    return (".".join(names[:n]) for n in range(len(names), 0, -1))
