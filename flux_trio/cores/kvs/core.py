"""The kvs service: it orders commits and reads, and answers a commit when it is durable. Pure.

    a reader   lookup, dir, page     → the values, in the next round of the store
    a writer   commit                → nothing, or flux-core's root, once it is durable
    a watcher  watch                 → the value, then each change, until it cancels or leaves

Keys are names joined by periods, as in RFC 16; values are text, to which commits may append. Where
the edition is flux-core's, `kvs` and `kvs-watch` speak as flux-core does (`flux_requests`), and
what only we have is the service `store`; otherwise `kvs` has that alone (`editions/kvs.py`). Work
goes to the store in rounds, one at a time: a round is one transaction of the commits that waited,
then the reads that waited. Commits are stored in the order in which they came. A read sees all that
its sender committed before it, and nothing that its sender committed after it. Only the instance
owner is served by what only we have.

A full disk is not an error (`disk_room.py`). Any other error of the store is final: the service
refuses all later commits.

A backup copies the whole store into a file while it is in use; one copy at a time.

Left out: RFC 11's content-addressed tree, links, snapshots of older roots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, assert_never

from flux_trio.cores.histogram import SHORT_S, Durations
from flux_trio.cores.kvs.answers import Answers
from flux_trio.cores.kvs.damage import Damages
from flux_trio.cores.kvs.disk_room import LAST_ROOM, ROUND_OPS_MAX, DiskRoom
from flux_trio.cores.kvs.flux_requests import FluxRequests
from flux_trio.cores.kvs.guest_room import GuestRoom
from flux_trio.cores.kvs.held_requests import (
    Commit,
    FactsRead,
    PageAsked,
    Read,
    Reading,
    Round,
    Waiting,
    without_answers,
)
from flux_trio.cores.kvs.namespaces import KNOWN, Namespaces
from flux_trio.cores.kvs.ops import (
    COMMIT,
    PAGE,
    BackedUp,
    Damaged,
    DiskFree,
    Fetch,
    Fetched,
    KvsAction,
    KvsInput,
    KvsOutbox,
    KvsTimer,
    MakeBackup,
    Op,
    Page,
    StopBackup,
    StoreAction,
    Stored,
    StoreInput,
    StoreOps,
    check_key,
    checked_bytes,
)
from flux_trio.cores.kvs.tree_watches import TreeWatches
from flux_trio.cores.kvs.watches import Watches
from flux_trio.cores.methods import Methods
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import CorePart, Part
from flux_trio.cores.turns import ClockStepped, Core, Exit, Log, TimerFired
from flux_trio.editions import CLASSIC, Edition, flux_kvs, kvs
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
    _early: list[Request] | None

    def __init__(self, owner: int = 0, edition: Edition = CLASSIC) -> None:
        self._words = words = edition.kvs
        self._outbox = KvsOutbox(edition)
        self._namespaces = Namespaces(owner)
        self._damages = Damages(self._outbox)
        self._watches = Watches(self._outbox, self._damages)
        self._tree_watches = TreeWatches(self._outbox, self._namespaces)
        self._flux = FluxRequests(self._outbox, self._namespaces, self._tree_watches, self._damages)
        self._guests = GuestRoom(self._outbox, self._namespaces)
        self._answers = Answers(self._outbox, self._damages, self._watches, self._flux)
        self._room = DiskRoom(self._outbox)
        self._backups = Backups(self._outbox)
        self._commits = Durations(SHORT_S)
        self._queue = deque()  # as many as the senders may have open
        self._round = None  # set while the store works
        self._failed = None  # set once a transaction failed; never cleared
        self._early = [] if words.is_flux else None  # until the namespaces are read; then None
        own, credit = words.own, topics.credit_of(words.own.watch)
        for_owner = {
            own.commit: self._commit,
            own.lookup_all: self._lookup_all,
            own.dir: self._dir,
            own.page: self._page,
            own.count_below: self._count,
            own.watch: self._watch,
            credit: self._watch_credit,
            own.cancel: self._watches.cancel,
            own.backup: self._backups.make,
        }
        for_all = {}
        farewells = dict.fromkeys(words.services, self._disconnect)
        if words.is_flux:
            for_owner |= {
                topics.KVS_NAMESPACE_CREATE: self._create,
                topics.KVS_NAMESPACE_REMOVE: self._remove,
                topics.KVS_NAMESPACE_LIST: self._flux.list_namespaces,
            }
            for_all = {
                topics.KVS_LOOKUP: self._lookup_tree,
                topics.KVS_LOOKUP_PLUS: self._lookup_tree,
                topics.KVS_COMMIT: self._commit_tree,
                topics.KVS_GETROOT: self._flux.getroot,
                topics.KVS_WAIT_VERSION: self._flux.wait_version,
                topics.KVS_WATCH_LOOKUP: self._flux.watch,
                topics.KVS_WATCH_CANCEL: self._tree_watches.cancel,
                topics.stats_of(topics.KVS_WATCHES): self._watch_stats,
            }
            farewells[topics.KVS_WATCHES] = self._watch_disconnect
        else:
            for_owner[topics.KVS_LOOKUP] = self._lookup
        stats = (topics.stats_of(topics.KVS), self._stats)
        self._methods = Methods(for_owner, for_all, stats, farewells, self._outbox.forget)

    def start(self, now: float) -> list[KvsAction]:
        self._outbox.now = now
        if self._early is not None:
            self._read_namespaces("")
        return self._outbox.pop_actions()

    def _read_namespaces(self, after: str) -> None:
        self._outbox.send(Fetch([], [], [Page(KNOWN, page_size(kvs.PAGE_KEYS_MAX), after)]))

    def _namespaces_read(self, done: Fetched) -> None:
        """Take a page of the namespaces; after the last one, take the requests that came early."""
        try:
            if done.errnum:
                raise FluxError(done.errnum, done.text)
            (page,) = done.pages
            self._namespaces.load(self._answers.keys_page(page))
        except FluxError as error:
            self._outbox.send(Exit(f"cannot read the namespaces of the kvs: {error.text}"))
            return
        if len(page.keys) == page_size(kvs.PAGE_KEYS_MAX):
            self._read_namespaces(page.keys[-1])
            return
        early, self._early = self._early, None
        self._flux.tell_all_bytes()
        for request in early or ():
            self._outbox.send(self._methods.call(request))

    def turn(self, now: float, inputs: Sequence[KvsInput]) -> list[KvsAction]:
        """Take requests and the store's answers; answer, and begin the next round."""
        self._outbox.now = now
        for item in inputs:
            self._take_input(item)
        for read in self._tree_watches.pop_due():
            self._read(read)
        if self._round is None and (self._queue or self._room.held.is_due):
            self._begin_round()
        return self._outbox.pop_actions()

    def _take_input(self, item: KvsInput) -> None:
        match item:
            case Request() if self._early is not None:
                self._early.append(item)
            case Request() if self._guests.holds(item):
                pass
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
                self._room_answered(item)
            case Event():
                if tells_return_of(topics.JOB_MANAGER, item):
                    self._tell_job_manager()
            case _:
                assert_never(item)

    def _tell_job_manager(self) -> None:
        if self._room.has_news:
            self._room.report()
        if self._words.is_flux:
            self._flux.tell_all_bytes()

    # Requests

    def _watch_stats(self, request: Request) -> None:
        """kvs-watch.stats-get: the watches of all keys, in whose words ever, by namespace."""
        stats = self._namespaces.watched(
            lambda key: self._watches.count(key) + self._tree_watches.count(key),
            len(self._watches) + len(self._tree_watches),
        )
        self._outbox.send(respond(request, flux_kvs.WATCH_STATS.write(stats)))

    def _stats(self) -> kvs.Stats:
        held = self._room.held
        return kvs.Stats(
            waiting=len(self._queue),
            watches=len(self._watches) + len(self._tree_watches),
            damaged=len(self._damages),
            held=kvs.HeldStats(requests=len(held.queue), bytes=held.nbytes),
            commit_seconds=self._commits.histogram(),
        )

    def _commit(self, request: Request) -> None:
        if request.topic == topics.KVS_COMMIT:
            kvs.check_is_classic(request)
        asked = COMMIT.read(request)
        ops = asked.ops
        if len(ops) > COMMIT_OPS_MAX:
            text = f"{len(ops)} ops: at most {COMMIT_OPS_MAX} in one commit"
            raise FluxError(Errno.EMSGSIZE, text)
        nbytes = checked_bytes(ops)
        wait, frees = asked.wait is not False, asked.frees is True
        commit = Commit(request, ops, nbytes, wait, frees, guests=asked.guests or [])
        if self._room.is_last and not (commit.wait or commit.frees):
            raise FluxError(Errno.ENOSPC, LAST_ROOM)
        made = self._flux.at_place(commit) if commit.guests else []
        self._take(commit)
        for name in made:
            self._made(name)

    def _take(self, commit: Commit) -> None:
        """Let a commit wait for the store, or for room. Raises FluxError."""
        if self._failed is not None:
            raise FluxError(self._failed.errnum, self._failed.text)
        if self._room.held.reason:
            self._room.held.hold(commit)
        else:
            self._queue.append(commit)

    def _commit_tree(self, request: Request) -> None:
        commit = self._flux.commit(request)
        if request.is_owner:
            self._begin(commit)
        else:
            self._guests.ask(commit)

    def _begin(self, read: FactsRead) -> None:
        """Let a commit of flux-core's wait for the store. Raises FluxError."""
        if read.asked:
            if self._room.held.reason:
                self._room.held.check_bytes(read.nbytes)
            self._read(read)
        elif (commit := self._flux.facts_read(read)) is not None:
            self._take(commit)

    def _room_answered(self, response: Response) -> None:
        commit, behind = self._guests.answered(response)
        if commit is not None:
            try:
                self._begin(commit)
            except FluxError as error:
                self._outbox.send(respond_error(commit.request, error.errnum, error.text))
        for request in behind:
            self._take_input(request)

    def _lookup_tree(self, request: Request) -> None:
        self._read(self._flux.lookup(request))

    def _create(self, request: Request) -> None:
        self._take(self._flux.create(request))
        self._made(flux_kvs.NAMESPACE_CREATE.read(request).namespace)

    def _made(self, name: str) -> None:
        output = Namespaces.output_in(name) if self._watches or self._tree_watches else ""
        if output and (self._watches.follow(output) or self._tree_watches.follow(output)):
            self._flux.is_read(output)

    def _remove(self, request: Request) -> None:
        if (removal := self._flux.remove(request)) is not None:
            self._take(removal)

    def _lookup(self, request: Request) -> None:
        self._read(Read(request, "lookup", [check_key(kvs.LOOKUP.read(request).key)]))

    def _lookup_all(self, request: Request) -> None:
        wanted = kvs.LOOKUP_ALL.read(request)
        keys = wanted.keys
        if len(keys) > LOOKUP_KEYS_MAX:
            text = f"{len(keys)} keys: at most {LOOKUP_KEYS_MAX} in one lookup"
            raise FluxError(Errno.EMSGSIZE, text)
        names = [check_key(key) for key in keys]
        self._read(Read(request, "lookup-all", names, wanted.chars_max or 0))

    def _dir(self, request: Request) -> None:
        self._read(Read(request, "dir", [_prefix_in(request)]))

    def _count(self, request: Request) -> None:
        self._read(Read(request, "count", [_prefix_in(request)]))

    def _page(self, request: Request) -> None:
        page = PAGE.read(request)
        for key in (page.prefix, page.after):
            if key:
                check_key(key)
        self._read(PageAsked(request, page))

    def _watch(self, request: Request) -> None:
        watch = self._watches.open(request)
        self._flux.is_read(watch.key)
        self._read(watch)

    def _watch_credit(self, request: Request) -> None:
        if (watch := self._watches.grant(request)) is not None:
            self._read(watch)

    def _read(self, read: Reading) -> None:
        if not self._room.hold_read(read):
            self._queue.append(read)

    def _disconnect(self, request: Request) -> None:
        if not (request.is_owner or self._words.is_flux):
            return  # every request of a guest was refused
        self._flux.leave(request.sender)
        self._queue = without_answers(self._queue, request.sender)
        self._room.held.leave(request.sender)
        if self._round is not None:
            self._round.leave(request.sender)
        self._watches.leave(request.sender)
        self._backups.leave(request.sender)

    def _watch_disconnect(self, request: Request) -> None:
        self._tree_watches.leave(request.sender)

    # Rounds

    def _begin_round(self) -> None:
        work = self._round = Round()
        if self._room.held.is_due:
            self._room.held.move_into(work)
        work.fill_from(self._queue, page_size(ROUND_OPS_MAX))
        if work.commits or work.is_probe:
            self._outbox.send(StoreOps([*work.ops, *self._counting(work)], work.frees))
        if work.has_reads:
            self._answers.fetch(work)

    def _counting(self, work: Round) -> Iterable[Op]:
        """Return the ops that store how many commits each namespace has had."""
        if not self._words.is_flux:
            return ()
        return self._namespaces.counting(chain.from_iterable(c.namespaces for c in work.commits))

    def _store_answered(self, answer: Stored | Fetched | BackedUp) -> None:
        match answer:
            case Stored():
                self._stored(answer)
            case Fetched() if self._early is not None:
                self._namespaces_read(answer)
            case Fetched():
                work, self._round = self._expect_round(), None
                for each in reversed(self._answers.fetched(work, answer)):
                    if self._room.held.reason and isinstance(each, Commit):
                        self._room.held.keep_first(each)
                    else:
                        self._queue.appendleft(each)
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
                self._answer_commit(commit)
                self._watches.changed(commit.ops)
            if self._room.held.reason and (work.commits or work.is_probe):
                self._room.stored()
        work.commits = []
        if not work.has_reads:
            self._round = None

    def _answer_commit(self, commit: Commit) -> None:
        if self._words.is_flux:
            self._flux.committed(commit)
        else:
            self._outbox.send(respond(commit.request, {}))

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


def _prefix_in(request: Request) -> str:
    prefix = kvs.PREFIX.read(request).prefix
    return check_key(prefix) if prefix else ""
