"""Answers to requests that read: kvs.lookup, lookup-all, dir, page, count. Pure."""

from __future__ import annotations

from itertools import islice

from flux_trio.cores.kvs.damage import Damages
from flux_trio.cores.kvs.held_requests import PageAsked, Read, Reading, Round
from flux_trio.cores.kvs.ops import Damaged, Fetch, Fetched, KvsOutbox, Page, PageRead, first_values
from flux_trio.cores.kvs.treeobjs import is_flux, value_of
from flux_trio.cores.kvs.watches import Watch, Watches
from flux_trio.cores.kvs_calls import read_chars
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import kvs
from flux_trio.messages import Errno, Level, Response, respond, respond_error, topics


class Answers(Part):
    """Asks the store for the values that a round reads, and answers the requests with them."""

    def __init__(self, outbox: KvsOutbox, damages: Damages, watches: Watches) -> None:
        self._outbox = outbox
        self._damages = damages
        self._watches = watches

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
            )
        )

    def fetched(self, work: Round, done: Fetched) -> list[Reading]:
        """Answer the reads of `work`, except those that a later round is to answer.

        Returns those whose values the store has not read, since others have filled the round.
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
            answer = kvs.KEYS_PAGE.write(self._keys_page(asked.page, page))
            self._send(work, asked, respond(asked.request, answer))
        for read, count in zip(work.counts, done.counts, strict=True):
            self._send(work, read, respond(read.request, kvs.COUNT.write(kvs.Count(count))))
        return [read for read in unread if work.answers(read)]

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
        if read.request.topic == topics.KVS_LOOKUP_ALL:
            return respond(read.request, kvs.VALUES.write(kvs.Values(whole)))
        if (value := whole[0]) is None:
            return respond_error(read.request, Errno.ENOENT, f"{read.names[0]}: no such key")
        if is_flux(read.request):
            return respond(read.request, value_of(value))
        return respond(read.request, kvs.VALUE.write(kvs.Value(value)))

    def _keys_page(self, asked: Page, page: PageRead) -> kvs.KeysPage:
        if not asked.values:
            return kvs.KeysPage(page.keys)
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
            else:
                self._outbox.send(respond_error(read.request, done.errnum, done.text))
