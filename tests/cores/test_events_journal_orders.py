"""flux-core's journal with followers that come, cancel, leave and ask again, in every order.

Meanwhile jobs are submitted, change, run, end and are purged, and the kvs answers late, in order.
Each follower is told each event of each job once and in order, as the eventlogs have them.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_manager.jobs import events_journal
from flux_trio.formats import Event
from flux_trio.messages import Errno, Request, Response, service_of, topics
from tests.support.asking import asked
from tests.support.manager_script import CANCEL, ManagerScript

SEEDS = 40
ACTS = 80
JOBS = range(1, 9)
FOLLOWERS = 4
TAG = 7
WANTED: tuple[dict[str, Any], ...] = (
    {},
    {"full": True},
    {"allow": {"submit": 1, "urgency": 1, "clean": 1}},
    {"deny": {"priority": 1, "urgency": 1}, "full": True},
)


class SlowManager(ManagerScript):
    """Reads wait, too: all that the kvs was asked is in `commits`, in its order."""

    def _do(self, action: Any) -> list[Any]:
        if isinstance(action, Request) and service_of(action.topic) in topics.KVS_SERVICES:
            self.commits.append(action)
            return []
        return super()._do(action)


class Follower:
    """A peer with one stream at a time: what it wants, and what it was told of each job."""

    def __init__(self, name: str, wanted: dict[str, Any] | None = None) -> None:
        self.name = name
        self.wanted = {} if wanted is None else wanted
        self.is_open = wanted is not None
        self.is_canceled = False
        self.is_up_to_date = False  # its backlog is over
        self.told: dict[int, list[Event]] = {}
        self.throughout: set[int] = set()  # jobs of which it is to be told all

    def chosen(self, log: list[Event]) -> list[Event]:
        allow, deny = self.wanted.get("allow"), self.wanted.get("deny", {})
        return [
            each for each in log if (allow is None or each.name in allow) and each.name not in deny
        ]


class World:
    """The job manager, those around it, and the followers."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.m = SlowManager()
        self.settle()
        self.m.attach_exec()
        self.m.attach_sched()
        self.settle()
        self.m.messages.clear()
        self.logs: dict[int, list[Event]] = {}  # also of jobs that were purged
        self.urgencies = 0
        self.waiting: dict[str, list[int]] = {}  # what the job manager asks, by topic
        self.followers = [Follower(f"follower-{n}") for n in range(FOLLOWERS)]
        self.nfollowers = FOLLOWERS
        self.refusals: Counter[str] = Counter()  # that are to come, by follower
        self.ending: set[int] = set()  # jobs that may end before a backlog is read
        self.purging = 0  # purges that are not answered

    def settle(self) -> None:
        while self.m.commits:
            self.m.commit()

    # Jobs

    def submit(self) -> None:
        if new := [jobid for jobid in JOBS if jobid not in self.logs]:
            self.logs[new[0]] = []
            for follower in self.followers:
                follower.throughout.add(new[0])
            self.m.submit(new[0])

    def change(self) -> None:
        if self.logs:
            self.urgencies += 1
            jobid = self.rng.choice(list(self.logs))
            self.m.urgency(jobid, 1 + self.urgencies % 30)

    def cancel(self) -> None:
        if self.logs:
            jobid = self.rng.choice(list(self.logs))
            self.ending.add(jobid)
            self.m.raise_(jobid)

    def serve(self) -> None:
        """Scheduler or execution service answer something."""
        if topic := self.rng.choice([name for name, ids in self.waiting.items() if ids] or [""]):
            jobid = self.waiting[topic].pop(0)
            match topic:
                case topics.SCHED_ALLOC:
                    self.m.alloc(jobid)
                case topics.SCHED_FREE:
                    self.m.freed(jobid)
                case _:
                    self.ending.add(jobid)
                    self.m.execute(jobid, "start")
                    self.m.execute(jobid, "finish", "release final")

    def purge(self) -> None:
        self.purging += 1
        self.m.ask(topics.JOB_PURGE, {"num_limit": 1, "force": True})

    def answer(self) -> None:
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            if self.m.commits:
                self.m.commit()
                self.look()

    # Followers

    def follow(self) -> None:
        """Begin a stream, or ask again with a matchtag that is in use, which changes nothing."""
        follower = self.rng.choice(self.followers)
        wanted = self.rng.choice(WANTED)
        request = asked(topics.JOB_EVENTS, wanted, by=follower.name, tag=TAG, streaming=True)
        if follower.is_open:
            if not follower.is_canceled:
                self.refusals[follower.name] += 1
                self.m.put(request)
            return
        follower.__init__(follower.name, wanted)  # type: ignore[misc]
        stored = {jobid for jobid in self.logs if self.m.names(jobid)}
        if not wanted.get("full") or self.purging:
            stored -= self.ending
        follower.throughout = stored
        self.m.put(request)

    def leave(self) -> None:
        if found := [each for each in self.followers if each.is_open]:
            follower = self.rng.choice(found)
            if self.rng.random() < 0.5:
                self.m.gone(follower.name)
                self.nfollowers += 1  # a peer that comes again has another name
                follower.__init__(f"follower-{self.nfollowers}")  # type: ignore[misc]
            elif not follower.is_canceled:
                follower.is_canceled = True  # what waits for a commit comes before the end
                cancel = {"matchtag": TAG}
                self.m.put(asked(topics.JOB_EVENTS_CANCEL, cancel, by=follower.name, tag=0))

    # What is said

    def look(self) -> None:
        """Take what was sent, and look at what followers were told."""
        if self.purging:  # any job that may have ended
            for follower in self.followers:
                if not follower.is_up_to_date:
                    follower.throughout -= self.ending
        for jobid in self.logs:
            if log := self.m.log(jobid):
                self.logs[jobid] = log
        sent, self.m.messages[:] = list(self.m.messages), []
        for message in sent:
            match message:
                case Request():
                    self.asked(message)
                case Response(topic=topics.JOB_PURGE):
                    self.purging -= 1
                case Response(topic=topics.JOB_EVENTS):
                    self.told(message)
        if self.m.messages:
            self.look()

    def asked(self, request: Request) -> None:
        """Keep what the job manager asks of a job; a cancel is answered at once."""
        payload: Any = request.payload
        match request.topic:
            case topics.SCHED_ALLOC | topics.SCHED_FREE | "job-exec.start":
                self.waiting.setdefault(request.topic, []).append(payload["id"])
            case topics.SCHED_CANCEL:
                if payload["id"] in (waiting := self.waiting[topics.SCHED_ALLOC]):
                    waiting.remove(payload["id"])
                    self.m.alloc(payload["id"], CANCEL)

    def told(self, response: Response) -> None:
        name = response.routes[0]
        found = [each for each in self.followers if each.name == name]
        if not found:
            return  # it has gone, and the broker drops this
        (follower,) = found
        if response.errnum == Errno.EPROTO and self.refusals[name]:
            self.refusals[name] -= 1
            return
        assert follower.is_open, f"{response} after the end"
        if response.errnum:
            assert response.errnum == Errno.ECANCELED
            assert follower.is_canceled
            follower.is_open = False
            return
        payload: Any = response.payload
        jobid = payload["id"]
        if jobid == -1:
            assert not follower.is_up_to_date, "its backlog was over before"
            follower.is_up_to_date = True
            return
        events = [msgspec.convert(each, Event) for each in payload["events"]]
        before = follower.told.setdefault(jobid, [])
        before += [each for each in events if each.name != "annotations"]
        log = follower.chosen(self.logs[jobid])
        assert before == log[: len(before)], f"job {jobid}: {before}, of {log}"

    def act(self) -> None:
        acts = {
            self.submit: 8,
            self.change: 12,
            self.cancel: 3,
            self.serve: 16,
            self.purge: 2,
            self.answer: 30,
            self.follow: 10,
            self.leave: 4,
        }
        (act,) = self.rng.choices(list(acts), list(acts.values()))
        act()
        self.look()

    def rest(self) -> int:
        """Everything is answered; return how many jobs were told in full to those who stayed."""
        while self.m.commits:
            self.m.commit()
            self.look()
        count = 0
        for follower in self.followers:
            if follower.is_open:
                assert not follower.is_canceled
                assert follower.is_up_to_date
                for jobid in follower.throughout:
                    assert follower.told.get(jobid, []) == follower.chosen(self.logs[jobid])
                    count += 1
        return count


def test_each_event_is_told_once_and_in_order_whatever_followers_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flux_trio.cores.stored_jobs.LOOKUP_JOBS_MAX", 2)
    monkeypatch.setattr(events_journal, "LOOKUP_JOBS_MAX", 2)
    told = 0
    for seed in range(SEEDS):
        world = World(seed)
        try:
            for _ in range(ACTS):
                world.act()
            told += world.rest()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    assert told > 5 * SEEDS, "followers were told too little"
