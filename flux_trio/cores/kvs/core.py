"""The kvs service: it orders commits and reads, and answers a commit when it is durable. Pure.

Keys are names joined by periods, as in RFC 16; values are text, to which commits may append. Work
goes to the store in rounds, one at a time: a round is one transaction of the commits that waited,
then the reads that waited. Commits are stored in the order in which they came. A read sees all that
its sender committed before it, and nothing that its sender committed after it. Only the instance
owner is served.

A full disk is not an error (`room.py`). Any other error of the store is final: the service refuses
all later commits.

`kvs.backup` copies the whole store into a file while it is in use; one copy at a time.

Flux's own programs ask in a form of their own (`treeobjs.py`). Left out: RFC 11's content-addressed
tree, namespaces, snapshots of older roots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, assert_never

from flux_trio.cores.histogram import SHORT_S, Durations
from flux_trio.cores.kvs.answers import Answers
from flux_trio.cores.kvs.damage import Damages
from flux_trio.cores.kvs.held_requests import (
    Commit,
    PageAsked,
    Read,
    Reading,
    Round,
    Waiting,
    without_answers,
)
from flux_trio.cores.kvs.ops import (
    COMMIT,
    PAGE,
    BackedUp,
    CommitOps,
    Damaged,
    DiskFree,
    Fetched,
    KvsAction,
    KvsInput,
    KvsOutbox,
    KvsTimer,
    MakeBackup,
    StopBackup,
    StoreAction,
    Stored,
    StoreInput,
    StoreOps,
    check_key,
    checked_bytes,
)
from flux_trio.cores.kvs.room import LAST_ROOM, ROUND_OPS_MAX, Room
from flux_trio.cores.kvs.treeobjs import is_flux, key_in, ops_in, root_of
from flux_trio.cores.kvs.watches import Watches
from flux_trio.cores.methods import Methods
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import CorePart, Part
from flux_trio.cores.turns import ClockStepped, Core, Log, TimerFired
from flux_trio.editions import kvs
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Level,
    Request,
    Response,
    respond,
    respond_error,
    tells_return_of,
    topics,
    unanswered,
)


class Backups(Part):
    """The backup that is being made; one at a time."""

    _request: Request | None

    def __init__(self, outbox: KvsOutbox) -> None:
        self._outbox = outbox
        self._request = None

    def make(self, request: Request) -> None:
        """Begin a backup; the request is answered when it is complete and durable."""
        path = kvs.BACKUP.read(request).path
        if self._request is not None:
            raise FluxError(Errno.EBUSY, "another backup is being made")
        self._request = request
        self._outbox.send(MakeBackup(path))

    def made(self, done: BackedUp) -> None:
        request, self._request = self._request, None
        assert request is not None, "the store has made a backup and had none to make"
        if done.errnum:
            self._outbox.send(respond_error(request, done.errnum, done.text))
        else:
            self._outbox.send(respond(request))

    def leave(self, sender: str) -> None:
        """Stop the backup if `sender` has asked for it: nobody waits for it (6.disconnect.2)."""
        if self._request is not None and self._request.sender == sender:
            self._request = unanswered(self._request, sender)
            self._outbox.send(StopBackup())


COMMIT_OPS_MAX: Final = 100_000  # of one request
LOOKUP_KEYS_MAX: Final = 10_000  # of one request


class KvsCore(CorePart, Core[KvsTimer, StoreInput, StoreAction]):
    """The whole state of the kvs service; the store has the values."""

    _queue: deque[Waiting]
    _round: Round | None
    _failed: Stored | None
    _ncommits: int  # those that were stored

    def __init__(self) -> None:
        self._outbox = KvsOutbox()
        self._damages = Damages(self._outbox)
        self._watches = Watches(self._outbox, self._damages)
        self._answers = Answers(self._outbox, self._damages, self._watches)
        self._room = Room(self._outbox)
        self._backups = Backups(self._outbox)
        self._commits = Durations(SHORT_S)
        self._queue = deque()  # as many as the senders may have open
        self._round = None  # set while the store works
        self._ncommits = 0
        self._failed = None  # set once a transaction failed; never cleared
        self._methods = Methods(
            for_owner={
                topics.KVS_COMMIT: self._commit,
                topics.KVS_LOOKUP: self._lookup,
                topics.KVS_LOOKUP_ALL: self._lookup_all,
                topics.KVS_DIR: self._dir,
                topics.KVS_PAGE: self._page,
                topics.KVS_COUNT: self._dir,
                topics.KVS_WATCH: self._watch,
                topics.credit_of(topics.KVS_WATCH): self._watch_credit,
                topics.KVS_CANCEL: self._watches.cancel,
                topics.KVS_BACKUP: self._backups.make,
            },
            for_all={},
            stats=(topics.stats_of(topics.KVS), self._stats),
            farewells={topics.KVS: self._disconnect},
            forget=self._outbox.forget,
        )

    def start(self, now: float) -> list[KvsAction]:
        self._outbox.now = now
        return []

    def turn(self, now: float, inputs: Sequence[KvsInput]) -> list[KvsAction]:
        """Take requests and the store's answers; answer, and begin the next round."""
        self._outbox.now = now
        for item in inputs:
            match item:
                case Request():
                    self._outbox.send(self._methods.call(item))
                case Stored() | Fetched() | BackedUp():
                    self._store_answered(item)
                case Damaged():
                    self._damages.report([item])
                case DiskFree(nbytes, is_last):
                    self._room.disk_free, self._room.is_last = nbytes, is_last
                    self._room.report()
                case TimerFired():
                    self._room.retry()
                case ClockStepped(by):
                    self._outbox.clock_stepped(by)
                case Response():
                    pass  # this service asks no other service
                case Event():
                    if self._room.has_news and tells_return_of(topics.JOB_MANAGER, item):
                        self._room.report()
                case _:
                    assert_never(item)
        if self._round is None and (self._queue or self._room.held.is_due):
            self._begin_round()
        return self._outbox.pop_actions()

    # Requests

    def _stats(self) -> kvs.Stats:
        held = self._room.held
        return kvs.Stats(
            waiting=len(self._queue),
            watches=len(self._watches),
            damaged=len(self._damages),
            held=kvs.HeldStats(requests=len(held.queue), bytes=held.nbytes),
            commit_seconds=self._commits.histogram(),
        )

    def _commit(self, request: Request) -> None:
        asked = CommitOps(ops_in(request)) if is_flux(request) else COMMIT.read(request)
        ops = asked.ops
        if len(ops) > COMMIT_OPS_MAX:
            text = f"{len(ops)} ops: at most {COMMIT_OPS_MAX} in one commit"
            raise FluxError(Errno.EMSGSIZE, text)
        nbytes = checked_bytes(ops)
        if self._failed is not None:
            raise FluxError(self._failed.errnum, self._failed.text)
        commit = Commit(request, ops, nbytes, asked.wait is not False, asked.frees is True)
        if self._room.is_last and not (commit.wait or commit.frees):
            raise FluxError(Errno.ENOSPC, LAST_ROOM)
        if self._room.held.reason:
            self._room.held.hold(commit)
        else:
            self._queue.append(commit)

    def _lookup(self, request: Request) -> None:
        key = key_in(request) if is_flux(request) else kvs.LOOKUP.read(request).key
        self._read(Read(request, [check_key(key)]))

    def _lookup_all(self, request: Request) -> None:
        wanted = kvs.LOOKUP_ALL.read(request)
        keys = wanted.keys
        if len(keys) > LOOKUP_KEYS_MAX:
            text = f"{len(keys)} keys: at most {LOOKUP_KEYS_MAX} in one lookup"
            raise FluxError(Errno.EMSGSIZE, text)
        self._read(Read(request, [check_key(key) for key in keys], wanted.chars_max or 0))

    def _dir(self, request: Request) -> None:
        prefix = kvs.PREFIX.read(request).prefix
        self._read(Read(request, [check_key(prefix) if prefix else ""]))

    def _page(self, request: Request) -> None:
        page = PAGE.read(request)
        for key in (page.prefix, page.after):
            if key:
                check_key(key)
        self._read(PageAsked(request, page))

    def _watch(self, request: Request) -> None:
        self._read(self._watches.open(request))

    def _watch_credit(self, request: Request) -> None:
        if (watch := self._watches.grant(request)) is not None:
            self._read(watch)

    def _read(self, read: Reading) -> None:
        if not self._room.hold_read(read):
            self._queue.append(read)

    def _disconnect(self, request: Request) -> None:
        if not request.is_owner:
            return  # every request of a guest was refused
        self._queue = without_answers(self._queue, request.sender)
        self._room.held.leave(request.sender)
        if self._round is not None:
            self._round.leave(request.sender)
        self._watches.leave(request.sender)
        self._backups.leave(request.sender)

    # Rounds

    def _begin_round(self) -> None:
        work = self._round = Round()
        if self._room.held.is_due:
            self._room.held.move_into(work)
        work.fill_from(self._queue, page_size(ROUND_OPS_MAX))
        if work.commits or work.is_probe:
            self._outbox.send(StoreOps(work.ops, work.frees))
        if work.has_reads:
            self._answers.fetch(work)

    def _store_answered(self, answer: Stored | Fetched | BackedUp) -> None:
        match answer:
            case Stored():
                self._stored(answer)
            case Fetched():
                work, self._round = self._expect_round(), None
                self._queue.extendleft(reversed(self._answers.fetched(work, answer)))
            case BackedUp():
                self._backups.made(answer)

    def _stored(self, done: Stored) -> None:
        """Answer the commits of the round, which are durable only now."""
        work = self._expect_round()
        if done.seconds:
            self._commits.add(done.seconds)
        if done.errnum == Errno.ENOSPC:
            self._queue = self._room.met_full_disk(work, done.text, self._queue)
        elif done.errnum:
            self._fail(done, work.commits)
        else:
            for commit in work.commits:
                self._ncommits += 1
                answer = root_of(self._ncommits) if is_flux(commit.request) else {}
                self._outbox.send(respond(commit.request, answer))
                self._watches.changed(commit.ops)
            if self._room.held.reason and (work.commits or work.is_probe):
                self._room.stored()
        work.commits = []
        if not work.has_reads:
            self._round = None

    def _expect_round(self) -> Round:
        assert self._round is not None, "the store answered and had nothing to do"
        return self._round

    def _fail(self, done: Stored, commits: list[Commit]) -> None:
        """Refuse this and every later commit: the store cannot be trusted. Reads go on."""
        text = f"kvs store failed, commits are refused: {done.text}"
        self._failed = Stored(done.errnum, text)
        self._outbox.send(Log(Level.CRIT, text))
        held, queue = self._room.pop_all(), [*self._queue]
        reads = [each for each in [*queue, *held] if not isinstance(each, Commit)]
        self._queue = deque(reads)
        waiting = [each for each in [*held, *queue] if isinstance(each, Commit)]
        for commit in [*commits, *waiting]:
            self._outbox.send(respond_error(commit.request, done.errnum, text))
