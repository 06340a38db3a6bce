"""The output of jobs is copied to the kvs, in every order of what can happen.

Readers ask for it and leave, the tasks write and end, and files and the kvs are read late. What is
stored of each file is what was written, from its beginning; at the end of the job it is all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from flux_trio.cores.exec import copying, output
from flux_trio.cores.exec.guest import GuestSettings
from flux_trio.cores.exec.output import whole_length
from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, ReadOutput, ToShell
from flux_trio.cores.pages import small_pages
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.editions import CLASSIC, CURRENT
from flux_trio.messages import Request, Response
from flux_trio.shell.protocol import Done, Start, Started, TaskSize
from tests.support.asking import asked, gone
from tests.support.exec_script import START_AT, ExecScript, jobspec, resources, stored_output, told

SEEDS = 60
ACTS = 200
JOBS = (7, 8, 9)
FILES = [(task, stream) for task in (0, 1) for stream in ("stdout", "stderr")]
READERS = ("alice", "bob")
PIECE = 8  # bytes of one event
WHOLE = 5  # bytes that fit into one, however characters are cut
HELD = {"kvs.commit", "kvs.lookup", "kvs.namespace-create", "kvs.namespace-remove"}


class World:
    """The core, its files and its kvs, the jobs, and those who read."""

    def __init__(self, seed: int, how: dict[str, Any]) -> None:
        self.rng = Random(seed)
        self.script = ExecScript(**how)
        self.script.held = {*HELD}
        self.written: dict[tuple[int, int, str], bytes] = {}
        self.reads: list[ReadOutput] = []
        self.given: Counter[int] = Counter()  # bytes that were read, by job
        self.timers: list[SetTimer] = []
        self.asked_for: set[int] = set()
        self.launched: list[int] = []
        self.running: set[int] = set()
        self.over: set[int] = set()
        self.told: set[int] = set()
        self.open: set[tuple[str, int]] = set()  # who wait for an answer, by matchtag
        self.tag = 0
        self.nearly = 0  # bytes that were stored of jobs that run
        self.now = START_AT

    def turn(self, *inputs: Any) -> None:
        self.took(self.script(*inputs, now=self.now))

    def took(self, actions: list[Any]) -> None:
        """Note what the core asks for, and what it tells."""
        for action in actions:
            if isinstance(action, ReadOutput):
                self.check_window(action)
                self.reads.append(action)
            elif isinstance(action, SetTimer):
                self.timers.append(action)
            elif isinstance(action, ToShell) and isinstance(action.request, Start):
                self.launched.append(action.request.id)
            elif isinstance(action, Response) and action.topic == "job-exec.copy":
                self.open.remove((action.routes[0], action.matchtag))
            elif told([action]) and told([action])[0][0] == "release":
                self.check_end(action.payload["id"])

    def check_end(self, jobid: int) -> None:
        """All of its output is stored before the end of a job is told."""
        self.told.add(jobid)
        for place in FILES:
            assert self.stored(jobid, place) == self.bytes_of(jobid, place), "output was lost"

    def stored(self, jobid: int, place: tuple[int, str]) -> bytes:
        contexts = [context for piece in stored_output(self.script, jobid) for context in piece]
        assert all("encoding" not in context or "version" in context for context in contexts)
        found = [each for each in contexts if (each.get("rank"), each.get("stream")) == of(place)]
        return "".join(context.get("data", "") for context in found).encode()

    def bytes_of(self, jobid: int, place: tuple[int, str]) -> bytes:
        return self.written.get((jobid, *place), b"")

    def check(self) -> None:
        """What is stored of a job that runs is the beginning of what was written."""
        for jobid in self.running:
            for place in FILES:
                stored = self.stored(jobid, place)
                self.nearly += len(stored)
                assert self.bytes_of(jobid, place).startswith(stored)

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
            key = (self.rng.choice(sorted(self.running)), *self.rng.choice(FILES))
            more = "".join(self.rng.choices("äx€\n", k=self.rng.randrange(1, 12))).encode()
            self.written[key] = self.written.get(key, b"") + more

    def end(self) -> None:
        if self.running:
            jobid = self.rng.choice(sorted(self.running))
            self.running.discard(jobid)
            self.over.add(jobid)
            size = {place: len(self.bytes_of(jobid, place)) for place in FILES}
            sizes = [TaskSize(task, size[task, "stdout"], size[task, "stderr"]) for task in (0, 1)]
            self.turn(Done(jobid, 0, 2, sizes=sizes))

    # Readers

    def ask(self) -> None:
        """Somebody reads the output of a job."""
        self.tag += 1
        name, jobid = self.rng.choice(READERS), self.rng.choice(JOBS)
        self.open.add((name, self.tag))
        self.turn(asked("job-exec.copy", {"id": jobid}, by=name, tag=self.tag))

    def leave(self) -> None:
        name = self.rng.choice(READERS)
        self.open = {(who, tag) for who, tag in self.open if who != name}
        self.turn(gone("job-exec", name))

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
                self.given[read.id] += whole_length(found)
        self.turn(OutputRead(read.number, read.id, tuple(chunks)))

    def check_window(self, read: ReadOutput) -> None:
        """What is read and not yet stored has a bound."""
        pieces = stored_output(self.script, read.id)
        stored = sum(len(each.get("data", "").encode()) for piece in pieces for each in piece)
        asked_for = sum(part.nbytes for part in read.parts)
        most = 4 * WHOLE + 12 * len(FILES)
        assert self.given[read.id] - stored + asked_for <= most, "more than the window"

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
            self.ask: 16,
            self.leave: 1,
            self.read_file: self.rng.choice([4, 15, 40]),
            self.answer: self.rng.choice([8, 30]),
            self.fire: self.rng.choice([5, 20]),
        }
        for act in self.rng.choices(list(acts), list(acts.values()), k=ACTS):
            act()
            self.check()

    def rest(self) -> None:
        """All jobs end."""
        for _ in range(100):
            self.start()
            self.answer()
            self.launch()
            self.end()
        while self.reads or self.timers or self.script._waiting:
            self.read_file()
            self.answer()
            self.fire()


def of(place: tuple[int, str]) -> tuple[str, str]:
    return str(place[0]), place[1]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little fits into an event, a read and a turn."""
    monkeypatch.setattr(copying, "POLLS_MAX", 2)
    monkeypatch.setattr(copying, "COPIES_MAX", 2)
    monkeypatch.setattr(copying, "COPY_BYTES_MAX", 4 * WHOLE)
    monkeypatch.setattr(copying, "PART_BYTES_MIN", 4)
    monkeypatch.setattr(copying, "WHOLE_BYTES", WHOLE)
    monkeypatch.setattr(output, "PIECE_BYTES_MAX", PIECE)
    with small_pages(2):
        yield


HOW: list[dict[str, Any]] = [{"edition": CLASSIC}, {"edition": CURRENT, "guests": GuestSettings()}]


@pytest.mark.parametrize("how", HOW, ids=["classic", "current"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_byte_is_stored_once_and_in_order_before_the_end(
    seed: int, how: dict[str, Any]
) -> None:
    world = World(seed, how)
    world.acts()
    world.rest()
    assert world.told == world.over == set(JOBS)
    assert world.open == set(), "a reader has no answer"


def test_output_is_stored_while_jobs_run() -> None:
    worlds = [World(seed, HOW[0]) for seed in range(20)]
    for world in worlds:
        world.acts()
    assert sum(world.nearly > 0 for world in worlds) > 10
