"""Answers to requests that read: lookups, lookup-all, dir, page, count. Pure."""

from __future__ import annotations

from itertools import islice

import msgspec

from flux_trio.cores.kvs.damage import Damages
from flux_trio.cores.kvs.flux_requests import FluxRequests
from flux_trio.cores.kvs.held_requests import (
    Commit,
    FactsRead,
    PageAsked,
    Read,
    Reading,
    Round,
    TreeRead,
    Waiting,
)
from flux_trio.cores.kvs.ops import (
    Damaged,
    Fetch,
    Fetched,
    KvsOutbox,
    PageRead,
    TreeFound,
    first_values,
)
from flux_trio.cores.kvs.watches import Watch, Watches
from flux_trio.cores.kvs_calls import read_chars
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import kvs
from flux_trio.messages import Errno, Level, Response, respond, respond_error, unanswered


class Answers(Part):
    """Asks the store for the values that a round reads, and answers the requests with them."""

    def __init__(
        self, outbox: KvsOutbox, damages: Damages, watches: Watches, flux: FluxRequests
    ) -> None:
        self._outbox = outbox
        self._damages = damages
        self._watches = watches
        self._flux = flux

    def fetch(self, work: Round) -> None:
        keys = [key for read in work.lookups for key in read.names]
        keys += [watch.key for watch in work.watches]
        first = work.lookups[0] if work.lookups else None
        self._outbox.send(
            Fetch(
                keys,
                [read.names[0] for read in work.listings],
                [read.page for read in work.pages],
                [read.names[0] for read in work.counts],
                read_chars(),
                at_least=1 if first is None or first.chars_max else len(first.names),
                trees=[asked for read in work.trees for asked in read.asked],
            )
        )

    def fetched(self, work: Round, done: Fetched) -> list[Waiting]:
        """Answer the reads of `work`, except those that a later round is to answer.

        Returns those whose values the store has not read, since others have filled the round, and
        the commits to which reads have led.
        """
        if done.errnum:
            self._failed(work, done)
            return []
        unread: list[Reading] = []
        looked_up = iter(done.values)
        for read in work.lookups:
            values = list(islice(looked_up, len(read.names)))
            if len(values) == len(read.names) or (values and read.chars_max):
                self._send(work, read, self._looked_up(read, values))
            else:
                unread.append(read)
        for watch in work.watches:
            for value in islice(looked_up, 1):
                if work.answers(watch):
                    self._watches.send_missing(watch, value)
                break
            else:
                unread.append(watch)
        for read, keys in zip(work.listings, done.listings, strict=True):
            self._send(work, read, respond(read.request, kvs.KEYS.write(kvs.Keys(keys))))
        for asked, page in zip(work.pages, done.pages, strict=True):
            listed = self.keys_page(page) if asked.page.values else kvs.KeysPage(page.keys)
            answer = kvs.KEYS_PAGE.write(listed)
            self._send(work, asked, respond(asked.request, answer))
        for read, count in zip(work.counts, done.counts, strict=True):
            self._send(work, read, respond(read.request, kvs.COUNT.write(kvs.Count(count))))
        commits = self._trees_read(work, done.trees)
        return [*commits, *(read for read in unread if work.answers(read))]

    def _trees_read(self, work: Round, all_found: list[TreeFound]) -> list[Commit]:
        commits: list[Commit] = []
        trees = iter(all_found)
        for tree in work.trees:
            found = list(islice(trees, len(tree.asked)))
            if isinstance(tree, FactsRead):
                commits += self._commits(work, tree, found)
            elif work.answers(tree):
                self._flux.read(tree, found)
        return commits

    def _commits(self, work: Round, read: FactsRead, found: list[TreeFound]) -> list[Commit]:
        """Return the commit that `read` leads to, if it is this round's."""
        if any(read is each for each in work.postponed):
            return []
        if (sender := read.request.sender) in work.gone:
            silent = unanswered(read.request, sender)
            read = msgspec.structs.replace(read, request=silent)
        commit = self._flux.facts_read(read, found)
        return [] if commit is None else [commit]

    def _send(self, work: Round, read: Read | PageAsked, response: Response | None) -> None:
        if work.answers(read):
            self._outbox.send(response)

    def _looked_up(self, read: Read, values: list[str | Damaged | None]) -> Response | None:
        """Return the answer to a lookup of one key, or of several."""
        values = list(first_values(values, read.chars_max or None))
        whole: list[str | None] = []
        for value in values:
            if value is not None and not isinstance(value, str):
                self._damages.report(each for each in values if isinstance(each, Damaged))
                return respond_error(read.request, Errno.EBADMSG, value.text)
            whole.append(value)
        if read.kind == "lookup-all":
            return respond(read.request, kvs.VALUES.write(kvs.Values(whole)))
        if (value := whole[0]) is None:
            return respond_error(read.request, Errno.ENOENT, f"{read.names[0]}: no such key")
        return respond(read.request, kvs.VALUE.write(kvs.Value(value)))

    def keys_page(self, page: PageRead) -> kvs.KeysPage:
        """Return the answer with the values that were read; report damage."""
        damaged = {
            key: value
            for key, value in zip(page.keys, page.values, strict=True)
            if isinstance(value, Damaged)
        }
        self._damages.report(damaged.values())
        values = [None if isinstance(value, Damaged) else value for value in page.values]
        reasons = {key: [value.text, value.remains] for key, value in damaged.items()}
        return kvs.KeysPage(page.keys, values, reasons or None)

    def _failed(self, work: Round, done: Fetched) -> None:
        self._outbox.send(Log(Level.ERR, f"kvs read failed: {done.text}"))
        for read in work.reads:
            if not work.answers(read):
                continue
            if isinstance(read, Watch):
                self._watches.end(read, done.errnum, done.text)
            elif isinstance(read, TreeRead) and read.watch is not None:
                self._flux.watch_failed(read, done.errnum, done.text)
            else:
                self._outbox.send(respond_error(read.request, done.errnum, done.text))
