"""What the key-value store decides: order, durability before answers, watches. Pure.

Keys are names joined by periods, as in RFC 16; values are text that grows by appending. Work goes
to the store in rounds, one at a time: a round is one transaction of every commit that waited, then
the reads that waited. Commits are stored in the order they came, and a sender's read sees what that
sender committed before it and nothing it committed after. Only the instance owner is served.

A full disk (ENOSPC) is no failure: commits are held in order (`waiting.py`) and the first is
tried again once a second, while reads go on. A commit that asks not to wait is refused at once. The
job manager is told why, so that `queue status` says it. Any other error of the store is final.

Left out: RFC 11's content-addressed tree, namespaces, snapshots of older roots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, Never, TypeAlias, assert_never

import msgspec
from sortedcontainers import SortedDict

from flux_trio.cores.credit import Credit, CreditKey, read_grant
from flux_trio.cores.kvs.ops import (
    Append,
    Damaged,
    Fetch,
    Fetched,
    Op,
    Page,
    PageRead,
    Put,
    Stored,
    StoreOps,
    Unlink,
    check_key,
    checked_bytes,
    span,
)
from flux_trio.cores.kvs.waiting import (
    NO_ROOM,
    Commit,
    Held,
    PageAsked,
    Read,
    Reading,
    Round,
    Waiting,
    Watch,
    without_answers,
)
from flux_trio.cores.methods import Methods
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import ClockStepped, CommonAction, CommonInput, Log, TimerFired
from flux_trio.formats.meanings import KvsKey, Matchtag, Peer
from flux_trio.messages import (
    Errno,
    Event,
    Flag,
    FluxError,
    Level,
    Request,
    Response,
    expect_payload,
    respond,
    respond_error,
    respond_stream,
    tells_return_of,
    topics,
)

COMMIT_OPS_MAX: Final = 100_000  # of one request
LOOKUP_KEYS_MAX: Final = 10_000  # of one request
ROUND_OPS_MAX: Final = 4096  # where a round stops taking in commits: about 0.02 s of disk
RETRY_S: Final = 1.0  # between two tries while there is no room
RETRY_TIMER: Final = "retry"


LOG_CRIT: Final = 2  # syslog severities


class _CommitRequest(msgspec.Struct, frozen=True):
    ops: list[Op]
    wait: bool = True


class _KeyRequest(msgspec.Struct, frozen=True):
    key: KvsKey


class _KeysRequest(msgspec.Struct, frozen=True):
    keys: list[KvsKey]
    chars_max: int = 0  # of the values in the answer; 0 for any number


class _DirRequest(msgspec.Struct, frozen=True):
    prefix: KvsKey


class _WatchRequest(_KeyRequest, frozen=True):
    credit: CreditKey | None = None


class _CancelRequest(msgspec.Struct, frozen=True):
    matchtag: Matchtag


KvsInput: TypeAlias = CommonInput | Stored | Fetched | Damaged
KvsAction: TypeAlias = CommonAction | StoreOps | Fetch


class WatchesByKey:
    """The watches that have read their key once, by key; then by sender and matchtag."""

    def __init__(self) -> None:
        self._by_key: SortedDict[str, dict[tuple[str, int], Watch]] = SortedDict()

    def __getstate__(self) -> list[Watch]:
        return [watch for watches in self._by_key.values() for watch in watches.values()]

    def __setstate__(self, watches: list[Watch]) -> None:
        self._by_key = SortedDict()
        for watch in watches:
            self.add(watch)

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, watch: Watch) -> None:
        self._by_key.setdefault(watch.key, {})[watch.stream] = watch

    def remove(self, watch: Watch) -> None:
        """Forget `watch`, if it is here."""
        others = self._by_key.get(watch.key, {})
        if others.pop(watch.stream, None) is not None and not others:
            del self._by_key[watch.key]

    def of(self, key: str) -> Iterable[Watch]:
        found: dict[tuple[str, int], Watch] = self._by_key.get(key, {})
        return found.values()

    def at_or_below(self, key: str) -> list[Watch]:
        """The watches of `key` and of the keys below it."""
        below = self._by_key.irange(*span(key), (False, False))
        return [watch for each in (key, *below) for watch in self.of(each)]


class KvsCore(CorePart):
    """The whole state of the kvs service; the values themselves are the store's."""

    _queue: deque[Waiting]
    _held: Held
    _round: Round | None
    _watches: dict[Peer, dict[Matchtag, Watch]]
    _by_key: WatchesByKey
    _failed: Stored | None
    _damage: set[str]

    payload_types: ClassVar[Mapping[str, Any]] = {
        topics.KVS_COMMIT: _CommitRequest,
        topics.KVS_LOOKUP: _KeyRequest,
        topics.KVS_LOOKUP_ALL: _KeysRequest,
        topics.KVS_DIR: _DirRequest,
        topics.KVS_PAGE: Page,
        topics.KVS_COUNT: _DirRequest,
        topics.KVS_WATCH: _WatchRequest,
    }

    def __init__(self) -> None:
        self._outbox = Outbox[Never, KvsAction, str]()  # it asks services nothing
        self._queue = deque()  # bounded by the senders' own inboxes
        self._held = Held()
        self._round = None  # set while the store works
        # Open streams by sender, then matchtag: as many as the senders may have requests open.
        self._watches = {}
        self._by_key = WatchesByKey()
        self._failed = None  # set once a transaction failed; never cleared
        self._damage = set()  # what is damaged, each said once; bounded by the keys
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
                topics.KVS_CANCEL: self._watch_cancel,
            },
            for_all={topics.disconnect_of(topics.KVS): self._disconnect},
            stats=(topics.stats_of(topics.KVS), self._stats),
        )

    def start(self, now: float) -> list[KvsAction]:
        """Nothing to do before the first request."""
        self._outbox.now = now
        return []

    def turn(self, now: float, inputs: Sequence[KvsInput]) -> list[KvsAction]:
        """Take requests and what came back from the store; answer, and begin the next round."""
        self._outbox.now = now
        for item in inputs:
            match item:
                case Request():
                    self._outbox.send(self._methods.call(item))
                case Stored():
                    self._stored(item)
                case Fetched():
                    self._fetched(item)
                case Damaged():
                    self._note_damage([item])
                case TimerFired():
                    self._outbox.fired(RETRY_TIMER)
                    self._held.is_due = bool(self._held.reason)
                case ClockStepped(by):
                    self._outbox.clock_stepped(by)
                case Response():
                    pass  # this service asks nobody
                case Event():
                    if self._held.reason and tells_return_of(topics.JOB_MANAGER, item):
                        self._tell_hindrance()
                case _:
                    assert_never(item)
        if self._round is None and (self._queue or self._held.is_due):
            self._begin_round()
        return self._outbox.take_actions()

    # Requests

    def _stats(self) -> dict[str, Any]:
        watches = sum(len(streams) for streams in self._watches.values())
        return {
            "waiting": len(self._queue),
            "watches": watches,
            "damaged": len(self._damage),
            "held": {"requests": len(self._held.queue), "bytes": self._held.nbytes},
        }

    def _commit(self, request: Request) -> None:
        asked = expect_payload(request, _CommitRequest)
        ops = asked.ops
        if len(ops) > COMMIT_OPS_MAX:
            raise FluxError(
                Errno.EMSGSIZE, f"{len(ops)} ops: at most {COMMIT_OPS_MAX} in one commit"
            )
        nbytes = checked_bytes(ops)
        if self._failed is not None:
            raise FluxError(self._failed.errnum, self._failed.text)
        commit = Commit(request, ops, nbytes, asked.wait)
        if self._held.reason:
            self._held.hold(commit)
        else:
            self._queue.append(commit)

    def _lookup(self, request: Request) -> None:
        self._read(Read(request, [check_key(expect_payload(request, _KeyRequest).key)]))

    def _lookup_all(self, request: Request) -> None:
        wanted = expect_payload(request, _KeysRequest)
        keys = wanted.keys
        if len(keys) > LOOKUP_KEYS_MAX:
            text = f"{len(keys)} keys: at most {LOOKUP_KEYS_MAX} in one lookup"
            raise FluxError(Errno.EMSGSIZE, text)
        self._read(Read(request, [check_key(key) for key in keys], wanted.chars_max))

    def _dir(self, request: Request) -> None:
        prefix = expect_payload(request, _DirRequest).prefix
        self._read(Read(request, [check_key(prefix) if prefix else ""]))

    def _page(self, request: Request) -> None:
        page = expect_payload(request, Page)
        for key in (page.prefix, page.after):
            if key:
                check_key(key)
        self._read(PageAsked(request, page))

    def _watch(self, request: Request) -> None:
        wanted = expect_payload(request, _WatchRequest)
        key = check_key(wanted.key)
        streams = self._watches.get(request.sender, {})
        if not request.is_streaming or request.matchtag in streams:
            raise FluxError(
                Errno.EPROTO, "kvs.watch: expected the streaming flag and a matchtag not in use"
            )
        watch = streams[request.matchtag] = Watch(request, key, Credit(wanted.credit))
        self._watches[request.sender] = streams
        self._read(watch)

    def _read(self, read: Reading) -> None:
        if self._held.concerns(read):
            self._held.hold_read(read)
        else:
            self._queue.append(read)

    def _watch_credit(self, request: Request) -> None:
        (sender, matchtag), more = read_grant(request)
        watch = self._watches.get(sender, {}).get(matchtag)
        if watch is not None:
            watch.credit.add(more)
            if watch.behind and not watch.reading:
                watch.reading = True
                self._read(watch)
        self._outbox.send(respond(request))

    def _watch_cancel(self, request: Request) -> None:
        matchtag = expect_payload(request, _CancelRequest).matchtag
        watch = self._watches.get(request.sender, {}).get(matchtag)
        if watch is None:
            raise FluxError(Errno.ENOENT, f"kvs.watch-cancel: no watch with matchtag {matchtag}")
        self._end_watch(watch, Errno.ECANCELED)
        self._outbox.send(respond(request, {}))

    def _disconnect(self, request: Request) -> None:
        if not request.is_owner:
            return  # all that a guest asked for was refused
        self._queue = without_answers(self._queue, request.sender)
        self._held.leave(request.sender)
        if self._round is not None:
            self._round.leave(request.sender)
        for watch in list(self._watches.get(request.sender, {}).values()):
            self._forget(watch)

    # Rounds

    def _begin_round(self) -> None:
        work = self._round = Round()
        if self._held.is_due:
            self._held.take(work)
        work.take_from(self._queue, ROUND_OPS_MAX)
        if work.commits or work.is_probe:
            self._outbox.send(StoreOps(work.ops))
        if work.reads:
            keys = [key for read in work.lookups for key in read.names]
            keys += [watch.key for watch in work.watches]
            self._outbox.send(
                Fetch(
                    keys,
                    [read.names[0] for read in work.listings],
                    [read.page for read in work.pages],
                    [read.names[0] for read in work.counts],
                )
            )

    def _stored(self, done: Stored) -> None:
        """Nobody hears of a change before this."""
        work = self._expect_round()
        if done.errnum == Errno.ENOSPC:
            self._no_room(work, done.text)
        elif done.errnum:
            self._fail(done, work.commits)
        else:
            for commit in work.commits:
                self._outbox.send(respond(commit.request, {}))
                if self._by_key:
                    for op in commit.ops:
                        self._notify(op)
            if self._held.reason and (work.commits or work.is_probe):
                self._found_room()
        work.commits = []
        if not work.reads:
            self._round = None

    def _fetched(self, done: Fetched) -> None:
        work = self._expect_round()
        self._round = None
        if done.errnum:
            self._fetch_failed(work, done)
            return
        looked_up = iter(done.values)
        for read in work.lookups:
            values = list(islice(looked_up, len(read.names)))
            self._answer(work, read, self._looked_up(read, values))
        for watch in work.watches:
            value = next(looked_up)
            if work.answers(watch):
                self._watch_read(watch, value)
        for read, keys in zip(work.listings, done.listings, strict=True):
            self._answer(work, read, respond(read.request, {"keys": keys}))
        for asked, page in zip(work.pages, done.pages, strict=True):
            payload = self._page_payload(asked.page, page)
            self._answer(work, asked, respond(asked.request, payload))
        for read, count in zip(work.counts, done.counts, strict=True):
            self._answer(work, read, respond(read.request, {"count": count}))

    def _page_payload(self, asked: Page, page: PageRead) -> dict[str, Any]:
        """With null for a value that is damaged, and the reason by its key in `damaged`."""
        payload: dict[str, Any] = {"keys": page.keys}
        if asked.values:
            values = dict(zip(page.keys, page.values, strict=True))
            damaged = {key: v for key, v in values.items() if isinstance(v, Damaged)}
            payload["values"] = [None if key in damaged else values[key] for key in page.keys]
            if damaged:
                self._note_damage(damaged.values())
                payload["damaged"] = {key: [v.text, v.remains] for key, v in damaged.items()}
        return payload

    def _looked_up(self, read: Read, values: list[str | Damaged | None]) -> Response | None:
        """The answer to a lookup of one key, or of several."""
        values = _first(values, read.chars_max)
        damaged = [value for value in values if isinstance(value, Damaged)]
        if damaged:
            self._note_damage(damaged)
            return respond_error(read.request, Errno.EBADMSG, damaged[0].text)
        if read.request.topic == topics.KVS_LOOKUP_ALL:
            return respond(read.request, {"values": values})
        if values[0] is None:
            return respond_error(read.request, Errno.ENOENT, f"{read.names[0]}: no such key")
        return respond(read.request, {"value": values[0]})

    def _note_damage(self, found: Iterable[Damaged]) -> None:
        """Tell of each damage once: a client may read it again and again."""
        for damaged in found:
            if damaged.text not in self._damage:
                self._damage.add(damaged.text)
                payload = {"key": damaged.key, "text": damaged.text}
                self._outbox.send(Log(Level.CRIT, f"damaged: {damaged.text}"))
                self._outbox.send(Event(topics.KVS_DAMAGED_EVENT, payload))

    def _answer(self, work: Round, read: Read | PageAsked, response: Response | None) -> None:
        if work.answers(read):
            self._outbox.send(response)

    def _expect_round(self) -> Round:
        assert self._round is not None, "the store answered and had nothing to do"
        return self._round

    # No room

    def _no_room(self, work: Round, text: str) -> None:
        """Hold the commits of `work` and try again later; refuse those that do not wait."""
        held = self._held
        if is_first := not held.reason:
            held.reason, held.since = f"no room for commits: {text}", self._outbox.now
            self._outbox.send(Log(LOG_CRIT, f"{held.reason}; trying again every second"))
            self._tell_hindrance()
        held.put_back(work, [commit for commit in work.commits if self._waits(commit)])
        if is_first:  # later commits are held, or refused, as they come
            queue, self._queue = self._queue, deque()
            for waiting in queue:
                if not isinstance(waiting, Commit):
                    self._read(waiting)
                elif self._waits(waiting):
                    held.keep(waiting)
        held.ops_max = 1
        self._outbox.set_timer(RETRY_TIMER, self._outbox.now + RETRY_S)

    def _waits(self, commit: Commit) -> bool:
        """Whether `commit` may be held; otherwise it is refused."""
        if not commit.wait:
            self._outbox.send(respond_error(commit.request, Errno.ENOSPC, NO_ROOM))
        return commit.wait

    def _found_room(self) -> None:
        """Commits are stored again: go on with those that are held, then with all others."""
        held = self._held
        if held.queue:
            held.is_due, held.ops_max = True, ROUND_OPS_MAX
            return
        waited_s = self._outbox.now - held.since
        self._outbox.send(Log(Level.NOTICE, f"there is room again, after {waited_s:.0f} s"))
        self._held = Held()
        self._tell_hindrance()

    def _tell_hindrance(self) -> None:
        """Have the job manager say why jobs wait; it may be away."""
        reason = {"reason": self._held.reason}
        self._outbox.send(Request(topics.JOB_HINDRANCE, reason, flags=int(Flag.NORESPONSE)))

    # Failure

    def _fail(self, done: Stored, commits: list[Commit]) -> None:
        """The store is not to be trusted: refuse this and every later commit; reads go on."""
        text = f"kvs store failed, commits are refused: {done.text}"
        self._failed = Stored(done.errnum, text)
        self._outbox.send(Log(LOG_CRIT, text))
        held, self._held = [*self._held.queue], Held()
        self._queue.extend(w for w in held if not isinstance(w, Commit))
        refused = [*commits, *(w for w in [*held, *self._queue] if isinstance(w, Commit))]
        self._queue = deque(w for w in self._queue if not isinstance(w, Commit))
        for commit in refused:
            self._outbox.send(respond_error(commit.request, done.errnum, text))

    def _fetch_failed(self, work: Round, done: Fetched) -> None:
        self._outbox.send(Log(Level.ERR, f"kvs read failed: {done.text}"))
        for read in work.reads:
            if not work.answers(read):
                continue
            if isinstance(read, Watch):
                self._end_watch(read, done.errnum, done.text)
            else:
                self._outbox.send(respond_error(read.request, done.errnum, done.text))

    # Watches

    def _is_open(self, watch: Watch) -> bool:
        streams = self._watches.get(watch.request.sender, {})
        return streams.get(watch.request.matchtag) is watch

    def _watch_read(self, watch: Watch, value: str | Damaged | None) -> None:
        """The value of a watch that begins, or of one that had no credit for what changed."""
        if isinstance(value, Damaged):
            self._note_damage([value])
            self._end_watch(watch, Errno.EBADMSG, value.text)
        elif not self._is_open(watch):
            pass
        elif not watch.begun:  # the next round's changes are the first that `value` lacks
            watch.begun = True
            self._by_key.add(watch)
            if value is not None:
                self._changed(watch, {"value": value})
        elif value is not None:
            replaced = watch.replaced
            watch.behind = watch.replaced = watch.reading = False
            if replaced:
                self._changed(watch, {"value": value})
            elif len(value) > watch.sent:
                self._changed(watch, {"append": value[watch.sent :]})

    def _notify(self, op: Op) -> None:
        match op:
            case Put(key, text):
                for watch in self._by_key.of(key):
                    self._changed(watch, {"value": text})
            case Append(key, text):
                for watch in self._by_key.of(key):
                    self._changed(watch, {"append" if watch.exists else "value": text})
            case Unlink(key):
                for watch in [w for w in self._by_key.at_or_below(key) if w.exists]:
                    self._end_watch(watch, Errno.ENOENT, f"{watch.key}: unlinked")

    def _changed(self, watch: Watch, payload: dict[str, str]) -> None:
        watch.exists = True
        if watch.behind or not watch.credit.allows(1):
            watch.behind = True
            watch.replaced |= "value" in payload
            return
        watch.credit.spend()
        watch.sent = (
            len(payload["value"]) if "value" in payload else watch.sent + len(payload["append"])
        )
        self._outbox.send(respond_stream(watch.request, payload))

    def _end_watch(self, watch: Watch, errnum: int, text: str = "") -> None:
        if self._is_open(watch):
            self._forget(watch)
            self._outbox.send(respond_error(watch.request, errnum, text))

    def _forget(self, watch: Watch) -> None:
        sender, matchtag = watch.request.sender, watch.request.matchtag
        del self._watches[sender][matchtag]
        if not self._watches[sender]:
            del self._watches[sender]
        self._by_key.remove(watch)


def _first(values: list[str | Damaged | None], chars_max: int) -> list[str | Damaged | None]:
    """The first of `values`, up to the one that goes beyond `chars_max`; all of them for 0."""
    if not chars_max:
        return values
    chars = 0
    for n, value in enumerate(values, start=1):
        chars += len(value) if isinstance(value, str) else 0
        if chars > chars_max:
            return values[:n]
    return values
