"""Streams of job-list and job-info with readers that pause, cancel and ask again, in every order.

Meanwhile eventlogs and output grow, jobs are submitted, end and are purged, and the kvs answers
late. Each line comes once and in order; a job that exists throughout is listed exactly once.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_index import ended_at, purge_ops
from flux_trio.cores.job_list import listing, watches
from flux_trio.cores.job_list.records import ended_of, folded
from flux_trio.cores.pages import small_pages
from flux_trio.cores.turns import TimerFired
from flux_trio.editions import journal
from flux_trio.formats import Event as LoggedEvent
from flux_trio.formats import format_event, job_key
from flux_trio.messages import ROLE_OWNER, Errno, Event, Flag, topics
from tests.support.asking import asked
from tests.support.eventlogs import ending, event, running
from tests.support.listing import STATES, ListedJobs

SEEDS = 150
ACTS = 90
JOBS = range(1, 7)
READERS = 5
TAG = 9
HELD_CHARS = 150  # some two lines
ENDLESS = 10_000  # more credit than there is to read


class Reader:
    """A peer with one stream at a time: what it may get, and what it has got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic = ""
        self.jobid = 0
        self.path = ""
        self.credit = 0
        self.got: list[Any] = []
        self.end: int | None = 0  # errnum; None while the stream is open
        self.is_canceled = False
        self.throughout: set[int] = set()  # jobs that were there at its begin, and are not purged

    @property
    def is_open(self) -> bool:
        return self.end is None


class World:
    """The core, its kvs, the jobs, and the readers."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.listed = ListedJobs()
        self.listed.start()
        self.listed.waits = True
        self.logs: dict[int, list[LoggedEvent]] = {}
        self.output: dict[int, int] = {}  # lines of guest.output
        self.over: set[int] = set()
        self.purged: set[int] = set()
        self.text: dict[tuple[int, str], str] = {}
        self.readers = [Reader(f"reader-{n}") for n in range(READERS)]

    # Jobs

    def add(self, jobid: int, *events: LoggedEvent) -> None:
        log = self.logs.setdefault(jobid, [])
        for each in events:
            self.grow_text(jobid, "eventlog", format_event(each))
            self.listed.tell((jobid, len(log), each))
            log.append(each)

    def grow_text(self, jobid: int, path: str, text: str) -> None:
        self.text[jobid, path] = self.text.get((jobid, path), "") + text

    def submit(self) -> None:
        if new := [jobid for jobid in JOBS if jobid not in self.logs]:
            self.add(new[0], *running(1000.0 + 10 * new[0]))

    def active(self) -> list[int]:
        return [jobid for jobid in self.logs if jobid not in self.over]

    def grow(self) -> None:
        if alive := self.active():
            jobid = self.rng.choice(alive)
            if self.rng.random() < 0.5:
                memo = event("memo", 1002.0 + 10 * jobid, n=len(self.logs[jobid]))
                self.add(jobid, memo)
                return
            number = self.output[jobid] = self.output.get(jobid, 0) + 1
            line = format_event(event("data", n=number, data="x" * self.rng.randrange(40)))
            self.grow_text(jobid, "guest.output", line)
            self.listed.commit(["append", job_key(jobid, "guest.output"), line])

    def end(self) -> None:
        if alive := self.active():
            jobid = self.rng.choice(alive)
            self.over.add(jobid)
            self.add(jobid, *ending(1000.0 + 10 * jobid))

    def purge(self) -> None:
        if old := sorted(self.over - self.purged):
            jobid = self.rng.choice(old)
            self.purged.add(jobid)
            record = ended_of(folded(jobid, self.text[jobid, "eventlog"]))
            self.listed.commit(*purge_ops(record))
            usec = ended_at(self.logs[jobid][-1].timestamp)
            told = journal.PURGED.write(journal.Purged([jobid], [usec]))
            self.listed.turn(Event(topics.JOB_PURGE_EVENT, told, rolemask=ROLE_OWNER))
            for reader in self.readers:
                reader.throughout.discard(jobid)

    # Readers

    def ask(self) -> None:
        """Begin a stream, or ask again with a matchtag that is in use, which changes nothing."""
        reader = self.rng.choice(self.readers)
        credit = self.rng.choice([1, 1, 1, 2, 5])
        topic: str
        payload: dict[str, Any]
        if self.rng.random() < 0.4 or not self.logs:
            topic, payload = topics.LIST_LIST, {"states": STATES, "credit": credit}
            jobid, path = 0, ""
        else:
            jobid = self.rng.choice(list(self.logs))
            path = self.rng.choice(["eventlog", "guest.output"])
            topic, payload = topics.INFO_WATCH, {"id": jobid, "path": path, "credit": credit}
        request = asked(topic, payload, by=reader.name, tag=TAG, streaming=True)
        if reader.is_open and reader.got and reader.topic == topic:
            if jobid in self.over or reader.is_canceled:
                return  # the one waits for a reading, or the other will end
            self.listed.turn(request)
            refusal = self.listed.sent.pop()
            assert (refusal.errnum, refusal.routes) == (Errno.EPROTO, (reader.name,))
        elif not reader.is_open:
            reader.__init__(reader.name)  # type: ignore[misc]
            reader.topic, reader.jobid, reader.path = topic, jobid, path
            reader.credit, reader.end = credit, None
            reader.throughout = self.logs.keys() - self.purged
            self.listed.turn(request)

    def list_at_once(self) -> None:
        """All readers list all jobs: streams that have ended take no place any more."""
        for reader in self.readers:
            reader.__init__(reader.name)  # type: ignore[misc]
            reader.topic, reader.credit, reader.end = topics.LIST_LIST, ENDLESS, None
            payload = {"states": STATES, "credit": ENDLESS}
            self.listed.turn(
                asked(topics.LIST_LIST, payload, by=reader.name, tag=TAG, streaming=True)
            )
        self.settle()

    def tell(self, reader: Reader, method: str, **payload: int) -> None:
        told = asked(
            f"{reader.topic}-{method}", {"matchtag": TAG, **payload}, by=reader.name, tag=0
        )
        self.listed.turn(msgspec.structs.replace(told, flags=int(Flag.NORESPONSE)))

    def some(self) -> Reader | None:
        found = [each for each in self.readers if each.is_open and not each.is_canceled]
        return self.rng.choice(found) if found else None

    def grant(self) -> None:
        if (reader := self.some()) is not None:
            more = self.rng.choice([1, 1, 2, 4])
            reader.credit += more
            self.tell(reader, "credit", credit=more)

    def cancel(self) -> None:
        if (reader := self.some()) is not None:
            reader.is_canceled = True
            self.tell(reader, "cancel")  # it waits with a stream that is not open yet

    # The rest of the world

    def answer_one(self) -> None:
        if self.listed.answers:
            self.listed.turn(self.listed.answers.pop(0))

    def answer_all(self) -> None:
        self.listed.let_kvs_answer()

    def fire(self) -> None:
        if self.listed.timers:
            timer = self.listed.timers.pop(0)
            self.listed.turn(TimerFired(timer.key), now=timer.at)

    def look(self) -> None:
        """The readers take what was sent, and look at it."""
        by_name = {reader.name: reader for reader in self.readers}
        sent, self.listed.sent = self.listed.sent, []
        for response in sent:
            reader = by_name[response.routes[0]]
            assert reader.is_open, f"{response} after the end"
            if response.errnum:
                reader.end = response.errnum
                self.check_end(reader)
            elif reader.topic == topics.LIST_LIST:
                payload: Any = response.payload
                reader.credit -= 1
                reader.got += [job["id"] for job in payload["jobs"]]
            else:
                payload = response.payload
                reader.credit -= 1
                reader.got.append(payload["event"])
            assert reader.credit >= 0, "more than there was credit for"
            self.check(reader)

    def check(self, reader: Reader) -> None:
        if reader.topic == topics.LIST_LIST:
            assert len(reader.got) == len(set(reader.got)), "a job was listed twice"
        else:
            lines = self.text.get((reader.jobid, reader.path), "").splitlines()
            assert reader.got == lines[: len(reader.got)]

    def check_end(self, reader: Reader) -> None:
        if reader.is_canceled:
            return
        if reader.topic == topics.LIST_LIST:
            assert reader.end == Errno.ENODATA
            assert reader.throughout <= set(reader.got), "a job was left out"
        elif reader.jobid not in self.purged:
            assert reader.end == Errno.ENODATA
            lines = self.text.get((reader.jobid, reader.path), "").splitlines()
            assert reader.got == lines, "lines were lost"
            assert reader.jobid in self.over
        else:
            assert reader.end in (Errno.ENODATA, Errno.ENOENT)

    def act(self) -> None:
        acts = {
            self.submit: 6,
            self.grow: 20,
            self.end: 4,
            self.purge: 2,
            self.ask: 10,
            self.grant: 14,
            self.cancel: 2,
            self.answer_one: 20,
            self.answer_all: 4,
            self.fire: 10,
        }
        (act,) = self.rng.choices(list(acts), list(acts.values()))
        act()
        self.look()

    def rest(self) -> None:
        """All jobs end, all readers read on, and everybody answers."""
        for jobid in self.active():
            self.over.add(jobid)
            self.add(jobid, *ending(1000.0 + 10 * jobid))
        for reader in self.readers:
            if reader.is_open:
                reader.credit += ENDLESS
                self.tell(reader, "credit", credit=ENDLESS)
        self.settle()

    def settle(self) -> None:
        while self.listed.answers or self.listed.timers:
            self.answer_all()
            self.fire()
            self.look()
        self.look()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_line_comes_once_and_each_job_is_listed_once_whatever_readers_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "HELD_CHARS_MAX", HELD_CHARS)
    # No place of a stream is taken any more when it has ended
    monkeypatch.setattr(watches, "WATCHES_OF_OWNER_MAX", READERS)
    monkeypatch.setattr(listing, "STREAMS_OF_USER_MAX", READERS)
    with small_pages(1):
        world = World(seed)
        for _ in range(ACTS):
            world.act()
        world.rest()
        world.list_at_once()
    assert [reader.name for reader in world.readers if reader.is_open] == []
