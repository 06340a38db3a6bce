"""Output streams with readers that pause, cancel, leave and ask again, in every order.

Meanwhile the tasks write and end, jobs are released and purged, and files and the kvs are read
late. What a reader has got of each file is what was written, from its beginning; at the end of its
stream it has all.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from flux_trio.cores.exec import attach, attachments, output
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, ReadOutput, ToShell
from flux_trio.cores.pages import small_pages
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.formats import format_eventlog, job_key
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.shell.protocol import Done, Start, Started, TaskSize
from tests.support.asking import OWNER_USERID, asked, gone
from tests.support.eventlogs import inactive, pending
from tests.support.exec_script import START_AT, ExecScript, jobspec, resources, stored_release

SEEDS = 100
ACTS = 300
JOBS = (7, 8, 9)
FILES = [(task, stream) for task in (0, 1) for stream in ("stdout", "stderr")]
READERS = 4
TAG = 1
ENDLESS = 10_000  # more credit than there is to read
PIECE = 8  # bytes of one response
WHOLE = 5  # bytes that fit into one, however characters are cut


class Reader:
    """A peer with at most one stream."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobid = 0
        self.credit = 0
        self.got: dict[tuple[int, str], str] = {}
        self.end: int | None = 0  # errnum; None while the stream is open
        self.is_canceled = False

    @property
    def is_open(self) -> bool:
        return self.end is None


class World:
    """The core, its files and its kvs, the jobs, and the readers."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.script = ExecScript()
        self.script.held = {*topics.LOOKUPS, "kvs.lookup", "kvs.count", "store.count"}
        self.written: dict[tuple[int, int, str], bytes] = {}
        self.reads: list[ReadOutput] = []
        self.timers: list[SetTimer] = []
        self.asked_for: set[int] = set()
        self.launched: list[int] = []
        self.running: set[int] = set()
        self.over: set[int] = set()
        self.released: set[int] = set()
        self.purged: set[int] = set()
        self.now = START_AT
        # Grants to who has no credit, pieces after the end of a job, streams that were whole
        self.npaused = self.nstored = self.nwhole = 0
        self.readers = [Reader(f"reader-{n}") for n in range(READERS)]
        for jobid in JOBS:
            log = format_eventlog(pending(userid=OWNER_USERID))
            self.script.kvs[job_key(jobid, "eventlog")] = log

    def turn(self, *inputs: Any) -> None:
        self.took(self.script(*inputs, now=self.now))

    def took(self, actions: list[Any]) -> None:
        """Note what the core asks for; the readers take what it says."""
        for action in actions:
            if isinstance(action, ReadOutput):
                self.reads.append(action)
            elif isinstance(action, SetTimer):
                self.timers.append(action)
            elif isinstance(action, ToShell) and isinstance(action.request, Start):
                self.launched.append(action.request.id)
            elif isinstance(action, Response) and action.topic == "job-exec.attach":
                self.heard(action)

    def heard(self, response: Response) -> None:
        (reader,) = [each for each in self.readers if each.name == response.routes[0]]
        assert reader.is_open, f"{response} after the end"
        if response.errnum:
            reader.end = response.errnum
            self.check_end(reader)
            return
        payload: Any = response.payload
        reader.credit -= 1
        assert reader.credit >= 0, "more than there was credit for"
        self.nstored += reader.jobid in self.over
        place = int(payload["rank"]), payload["stream"]
        reader.got[place] = reader.got.get(place, "") + payload["data"]
        assert self.text(reader.jobid, place).startswith(reader.got[place])

    def text(self, jobid: int, place: tuple[int, str]) -> str:
        return self.bytes_of(jobid, place).decode(errors="ignore")

    def bytes_of(self, jobid: int, place: tuple[int, str]) -> bytes:
        return self.written.get((jobid, *place), b"")

    def check_end(self, reader: Reader) -> None:
        if reader.is_canceled:
            return
        if reader.end == Errno.ENOENT:
            assert reader.jobid in self.purged
            return
        assert reader.end == Errno.ENODATA
        self.nwhole += bool(reader.got)
        assert reader.jobid in self.over
        for place in FILES:
            assert reader.got.get(place, "") == self.text(reader.jobid, place), "output was lost"

    # Jobs

    def start(self) -> None:
        if new := [each for each in JOBS if each not in self.asked_for]:
            self.asked_for.add(new[0])
            r = resources({0: 2})
            self.took(self.script.start(new[0], jobspec(ntasks=2), r, now=self.now))

    def launch(self) -> None:
        """The shell host has launched the tasks of a job."""
        if self.launched:
            jobid = self.launched.pop(0)
            self.running.add(jobid)
            self.turn(Started(jobid))

    def write(self) -> None:
        if self.running:
            jobid = self.rng.choice(sorted(self.running))
            key = (jobid, *self.rng.choice(FILES))
            had = self.written.get(key, b"")
            more = "".join(self.rng.choices("äx€\n", k=self.rng.randrange(1, 12))).encode()
            self.written[key] = had + more

    def end(self) -> None:
        if self.running:
            jobid = self.rng.choice(sorted(self.running))
            self.running.discard(jobid)
            self.over.add(jobid)
            size = {place: len(self.bytes_of(jobid, place)) for place in FILES}
            sizes = [TaskSize(task, size[task, "stdout"], size[task, "stderr"]) for task in (0, 1)]
            self.turn(Done(jobid, 0, 2, sizes=sizes))

    def release(self) -> None:
        """The final release of a job is durable, and its output is stored."""
        key = "guest.output"
        left = sorted(self.over - self.released)
        if stored := [each for each in left if job_key(each, key) in self.script.kvs]:
            jobid = self.rng.choice(stored)
            self.released.add(jobid)
            log = format_eventlog(inactive(userid=OWNER_USERID))
            self.script.kvs[job_key(jobid, "eventlog")] = log
            self.turn(stored_release(self.script, jobid))

    def purge(self) -> None:
        if over := [each for each in sorted(self.over) if self.is_inactive(each)]:
            jobid = self.rng.choice(over)
            self.purged.add(jobid)
            below = job_key(jobid, "")
            for key in [key for key in self.script.kvs if key.startswith(below)]:
                del self.script.kvs[key]

    def is_inactive(self, jobid: int) -> bool:
        return '"clean"' in self.script.kvs.get(job_key(jobid, "eventlog"), "")

    # Readers

    def ask(self) -> None:
        """Begin a stream, or ask again with a matchtag that is in use, which changes nothing."""
        reader, jobid = self.rng.choice(self.readers), self.rng.choice(JOBS)
        credit = self.rng.choice([1, 1, 1, 2])
        payload = {"id": jobid, "credit": credit}
        request = asked("job-exec.attach", payload, by=reader.name, tag=TAG, streaming=True)
        if reader.is_open:
            (refusal,) = self.script(request, now=self.now)
            assert (refusal.errnum, refusal.routes) == (Errno.EPROTO, (reader.name,))
            return
        reader.__init__(reader.name)  # type: ignore[misc]
        reader.jobid, reader.credit, reader.end = jobid, credit, None
        self.turn(request)

    def one(self) -> Reader | None:
        found = [reader for reader in self.readers if reader.is_open]
        return self.rng.choice(found) if found else None

    def grant(self) -> None:
        if (reader := self.one()) is not None:
            self.npaused += not reader.credit
            self.more(reader, self.rng.choice([1, 1, 2, 4, 20]))

    def more(self, reader: Reader, credit: int) -> None:
        reader.credit += credit
        payload = {"matchtag": TAG, "credit": credit}
        self.turn(asked("job-exec.attach-credit", payload, by=reader.name, tag=0))

    def cancel(self) -> None:
        if (reader := self.one()) is not None:
            reader.is_canceled = True
            payload = {"matchtag": TAG}
            self.turn(asked("job-exec.attach-cancel", payload, by=reader.name, tag=5))
            assert not reader.is_open

    def leave(self) -> None:
        if (reader := self.one()) is not None:
            reader.end = 0
            self.turn(gone("job-exec", reader.name))

    # The rest of the world

    def read_file(self) -> None:
        """Answer the oldest read with what the files have now."""
        if not self.reads:
            return
        read, chunks = self.reads.pop(0), []
        for part in read.parts:
            data = self.bytes_of(read.id, (part.taskid, part.stream))
            if found := data[part.offset : part.offset + part.nbytes]:
                chunks.append(Chunk(part.taskid, part.stream, part.offset, found))
        self.turn(OutputRead(read.key, read.id, tuple(chunks)))

    def answer(self) -> None:
        """The kvs answers the oldest request."""
        waiting: list[Request] = self.script._waiting
        if waiting:
            self.turn(self.script._kvs(waiting.pop(0)))

    def fire(self) -> None:
        if self.timers:
            timer = self.timers.pop(0)
            self.now = max(self.now, timer.at)
            self.turn(TimerFired(timer.key))

    def acts(self) -> None:
        """Do what can happen, each at a pace of this world."""
        acts = {
            self.start: 10,
            self.launch: 20,
            self.write: 24,
            self.end: 2,
            self.release: 6,
            self.purge: 1,
            self.ask: 16,
            self.grant: self.rng.choice([8, 30]),
            self.cancel: self.rng.choice([1, 10]),
            self.leave: 1,
            self.read_file: self.rng.choice([4, 15, 40]),
            self.answer: self.rng.choice([8, 30]),
            self.fire: self.rng.choice([5, 20]),
        }
        for act in self.rng.choices(list(acts), list(acts.values()), k=ACTS):
            act()

    def rest(self) -> None:
        """All jobs end and are released, and all readers read on."""
        while self.over != set(JOBS):
            self.start()
            self.answer()
            self.launch()
            self.end()
        for reader in self.readers:
            if reader.is_open:
                self.more(reader, ENDLESS)
        self.settle()
        for _ in JOBS:
            self.release()
        self.settle()

    def settle(self) -> None:
        while self.reads or self.timers or self.script._waiting:
            self.read_file()
            self.answer()
            self.fire()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little fits into a response, a read and a turn."""
    monkeypatch.setattr(attach, "POLLS_OF_USER_MAX", 2)
    monkeypatch.setattr(output, "PIECE_BYTES_MAX", PIECE)
    monkeypatch.setattr(attachments, "WHOLE_BYTES", WHOLE)
    with small_pages(2):
        yield


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_byte_comes_once_and_in_order_whatever_readers_do(seed: int) -> None:
    world = World(seed)
    world.acts()
    world.rest()
    assert [reader.name for reader in world.readers if reader.is_open] == []


def test_readers_pause_and_read_files_and_what_is_stored_and_what_is_purged() -> None:
    worlds = [World(seed) for seed in range(40)]
    for world in worlds:
        world.acts()
    assert sum(world.npaused for world in worlds) > 20
    assert sum(world.nstored for world in worlds) > 20
    assert sum(world.nwhole for world in worlds) > 10
    assert sum(len(world.purged) for world in worlds) > 5
