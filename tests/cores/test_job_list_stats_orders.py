"""Who follows job-stats: readers come, leave and ask again, in every order.

Meanwhile the jobs of before are still being counted, others are submitted and end, and kvs and job
manager answer late. No response goes back behind an earlier one or tells more than there is, they
come no faster than they may, and the last one has what is there at rest.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from flux_trio.config import parse_config
from flux_trio.cores.job_list import changes
from flux_trio.cores.pages import small_pages
from flux_trio.cores.turns import TimerFired
from flux_trio.formats import Event as LoggedEvent
from flux_trio.messages import Errno, Response, topics
from tests.support.asking import asked, gone
from tests.support.eventlogs import ending, inactive, running
from tests.support.listing import NAME, ListedJobs

SEEDS = 150
ACTS = 60
OLD = range(1, 5)  # jobs that have ended before
JOBS = range(5, 12)
READERS = 4
TAG = 9


class Reader:
    """A peer that follows job-stats, or not."""

    def __init__(self, name: str, asked_at: float | None = None) -> None:
        self.name = name
        self.asked_at = asked_at
        self.told: list[tuple[float, dict[str, int]]] = []  # time and numbers of each response

    @property
    def is_open(self) -> bool:
        return self.asked_at is not None


class World:
    """The core, its kvs and job manager, the jobs, and the readers."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.has_queues = bool(seed % 2)
        self.listed = ListedJobs(parse_config("[queues.batch]" if self.has_queues else ""))
        for jobid in OLD:
            self.listed.store_log(jobid, inactive(1000.0 + 10 * jobid))
        self.listed.waits = True
        self.listed.do(self.listed.core.start(0.0))
        while self.listed.journal is None:
            self.listed.let_kvs_answer()
        self.listed.tell()
        self.logs: dict[int, list[LoggedEvent]] = {}
        self.over: list[int] = list(OLD)
        self.readers = [Reader(f"reader-{n}") for n in range(READERS)]
        self.nreaders = READERS
        self.refusals: Counter[str] = Counter()  # that are to come

    @property
    def numbers(self) -> dict[str, int]:
        """What there is."""
        nactive = sum(jobid not in self.over for jobid in self.logs)
        return {"inactive": len(self.over), "total": nactive + len(self.over)}

    # Jobs

    def submit(self) -> None:
        if new := [jobid for jobid in JOBS if jobid not in self.logs]:
            jobid = new[0]
            self.logs[jobid] = running(1000.0 + 10 * jobid)
            self.listed.tell_all(jobid, self.logs[jobid])

    def end(self) -> None:
        if alive := [jobid for jobid in self.logs if jobid not in self.over]:
            jobid = self.rng.choice(alive)
            self.over.append(jobid)
            self.listed.tell_all(jobid, ending(1000.0 + 10 * jobid), len(self.logs[jobid]))

    # Readers

    def follow(self) -> None:
        """Begin a stream, or ask again with a matchtag that is in use, which changes nothing."""
        reader = self.rng.choice(self.readers)
        if reader.is_open:
            self.refusals[reader.name] += 1
        else:
            reader.__init__(reader.name, self.listed.now)  # type: ignore[misc]
        self.listed.turn(asked(topics.LIST_STATS, {}, by=reader.name, tag=TAG, streaming=True))

    def leave(self) -> None:
        reader = self.rng.choice(self.readers)
        self.listed.turn(gone(NAME, reader.name))
        self.look()
        del self.refusals[reader.name]
        self.nreaders += 1  # a peer that comes again has another name
        reader.__init__(f"reader-{self.nreaders}")  # type: ignore[misc]

    # The rest of the world

    def answer(self) -> None:
        if self.listed.asked_manager and self.rng.random() < 0.5:
            request = self.listed.asked_manager.pop(0)
            self.listed.turn(Response(request.topic, {"queues": {}}, 0, request.matchtag))
        elif self.listed.answers:
            self.listed.turn(self.listed.answers.pop(0))

    def fire(self) -> None:
        if self.listed.timers:
            timer = self.listed.timers.pop(0)
            self.listed.now = max(self.listed.now, timer.at)
            self.listed.turn(TimerFired(timer.key))

    def look(self) -> None:
        """The readers take what was sent, and look at it."""
        by_name = {reader.name: reader for reader in self.readers}
        sent, self.listed.sent = self.listed.sent, []
        for response in sent:
            reader = by_name[response.routes[0]]
            assert reader.is_open, f"{response} to somebody who has left"
            if response.errnum:
                assert response.errnum == Errno.EPROTO
                assert self.refusals[reader.name], response
                self.refusals[reader.name] -= 1
                continue
            payload: Any = response.payload
            states = payload["job_states"]
            told = {name: states[name] for name in self.numbers}
            before = reader.told[-1][1] if reader.told else {"inactive": len(OLD), "total": 0}
            for name, most in self.numbers.items():
                assert before[name] <= told[name] <= most
            reader.told.append((self.listed.now, told))

    def act(self) -> None:
        acts = {
            self.submit: 6,
            self.end: 5,
            self.follow: 8,
            self.leave: 3,
            self.answer: 14,
            self.fire: 6,
        }
        (act,) = self.rng.choices(list(acts), list(acts.values()))
        act()
        self.look()

    def rest(self) -> int:
        """Everybody answers; return how many responses there were."""
        while self.listed.answers or self.listed.timers or self.listed.asked_manager:
            self.answer()
            self.fire()
            self.look()
        assert not self.refusals.total()
        followers = [reader for reader in self.readers if reader.is_open]
        for reader in followers:
            assert reader.told, f"{reader.name} was told nothing"
            assert reader.told[-1][1] == self.numbers
            times = [at for at, _ in reader.told[1:]]
            if not self.has_queues:  # else they come when the job manager has answered
                assert all(after - before >= changes.STATS_S for before, after in pairwise(times))
        return sum(len(reader.told) for reader in followers)


@pytest.mark.parametrize("edge", [1, 2])
def test_who_follows_the_numbers_has_those_of_now_whatever_readers_do(edge: int) -> None:
    told = 0
    with small_pages(edge):
        for seed in range(SEEDS):
            world = World(seed)
            try:
                for _ in range(ACTS):
                    world.act()
                told += world.rest()
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise
    assert told > 3 * SEEDS, "readers were told too little"
