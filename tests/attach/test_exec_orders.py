"""Our execution service at a scripted flux-core, in every order of what can happen.

Jobs are asked for, and again; the kvs answers late; tasks write, end and are canceled; the shell
host loses its directory; the service is killed between any two requests, and a successor goes on.
What is stated is what flux-core is told, and what is there at rest.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from flux_trio.cores.exec import copying
from flux_trio.cores.exec.output import WHOLE_BYTES
from flux_trio.cores.exec.vocabulary import ShellConnected, ShellLost
from flux_trio.formats import format_eventlog, job_key
from flux_trio.shell.protocol import Ack, Attach, Done, Signal, Start, Started, TaskSize, Unknown
from tests.support.asking import OWNER_USERID
from tests.support.bridge_script import BridgeScript
from tests.support.eventlogs import ending, event, raised, running
from tests.support.exec_script import job_exception, jobspec
from tests.support.flux_kvs import FluxKvs

SEEDS = 120
ACTS = 60
JOBS = range(7, 11)
LAST = 20  # a job that finds everything free
LIMIT = 12  # bytes of output that every second job may have
TERMINATED = 143 << 8


class World:
    """flux-core, its kvs and the shell host, around the service that lives now."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.kvs = FluxKvs()
        self.files: dict[tuple[int, int, str], bytes] = {}
        self.asked: set[int] = set()
        self.told_start: set[int] = set()
        self.ends: Counter[int] = Counter()  # final releases that flux-core was told
        self.finishes: Counter[int] = Counter()
        self.canceled: set[int] = set()
        self.lost: set[int] = set()  # the shell host lost them
        self.hosted: dict[
            int, int | None
        ] = {}  # jobs of the shell host: status, None while they run
        self.acknowledged: set[int] = set()
        self.launches: Counter[int] = Counter()
        self.begin()

    def begin(self) -> None:
        """A service begins; flux-core asks it for the jobs that run."""
        self.nshell = self.ntold = 0
        self.service = BridgeScript(self.kvs)
        self.service.files = self.files
        for jobid in sorted(self.asked - self.canceled - self.ends.keys()):
            self.ask(jobid)

    def ask(self, jobid: int) -> None:
        options: dict[str, Any] = {}
        if jobid % 2 and jobid in JOBS:
            options["attributes"] = {"system.shell.options.output.limit": str(LIMIT)}
        self.asked.add(jobid)
        self.service.start(jobid, jobspec("true", **options), reattach=jobid in self.told_start)

    # What can happen

    def start(self) -> None:
        if new := [jobid for jobid in JOBS if jobid not in self.asked]:
            self.ask(new[0])

    def ask_again(self) -> None:
        if alive := sorted(self.asked - self.canceled - self.ends.keys()):
            self.ask(self.rng.choice(alive))

    def answer_one(self) -> None:
        """The kvs answers the oldest request."""
        if self.service.held:
            self.service._ask_kvs(self.service.held.pop(0))

    def answer_all(self) -> None:
        self.service.let_go()
        self.service.hold()

    def host(self) -> None:
        """The shell host takes the requests that have come."""
        while self.nshell < len(self.service.shell):
            request = self.service.shell[self.nshell]
            self.nshell += 1
            self.host_takes(request)

    def host_takes(self, request: Any) -> None:
        match request:
            case Start(id=jobid) | Attach(id=jobid) if jobid in self.hosted:
                self.service.core_gets(Started(jobid))
                if self.hosted[jobid] is not None:
                    self.tell_end(jobid)
            case Start(id=jobid):
                self.launches[jobid] += 1
                self.hosted[jobid] = None
                self.service.core_gets(Started(jobid))
            case Attach(id=jobid):
                self.service.core_gets(Unknown(jobid))
            case Signal(jobid, _) if self.hosted.get(jobid, 0) is None:
                self.end_job(jobid, TERMINATED)
            case Ack(jobid):
                self.hosted.pop(jobid, None)
                self.acknowledged.add(jobid)

    def end_job(self, jobid: int, status: int) -> None:
        self.hosted[jobid] = status
        self.tell_end(jobid)

    def tell_end(self, jobid: int) -> None:
        size = len(self.files.get((jobid, 0, "stdout"), b""))
        sizes = [TaskSize(0, size, 0)] if size else []
        status = self.hosted[jobid]
        assert status is not None
        self.service.core_gets(Done(jobid, status, 1, sizes=sizes))

    def running(self) -> list[int]:
        return sorted(jobid for jobid, status in self.hosted.items() if status is None)

    def write(self) -> None:
        if alive := self.running():
            jobid = self.rng.choice(alive)
            written = self.files.get((jobid, 0, "stdout"), b"")
            self.files[jobid, 0, "stdout"] = written + b"%d:%d\n" % (jobid, len(written))
            self.service.poll()

    def end(self) -> None:
        if alive := self.running():
            self.end_job(self.rng.choice(alive), 0)

    def cancel(self) -> None:
        if alive := sorted(self.asked - self.canceled - self.ends.keys()):
            jobid = self.rng.choice(alive)
            self.canceled.add(jobid)
            log = [*running(48.0, userid=OWNER_USERID), raised("cancel")]
            self.kvs.spaces["primary"][job_key(jobid, "eventlog")] = format_eventlog(log)
            self.service.broker_says(job_exception(jobid))

    def lose_host(self) -> None:
        """The shell host ends, and its directory is gone with all that it knew."""
        self.lost |= self.hosted.keys()
        self.hosted.clear()
        self.nshell = len(self.service.shell)
        self.service.core_gets(ShellLost("it died"))
        self.service.core_gets(ShellConnected())

    def kill(self) -> None:
        """The service dies; what it has asked and nobody has answered is nobody's."""
        self.begin()
        if self.rng.random() < 0.8:
            self.service.hold()

    def look(self) -> None:
        """flux-core takes what it was told."""
        for each in self.service.told[self.ntold :]:
            payload: Any = each.payload
            jobid, kind = payload["id"], payload["type"]
            assert jobid not in self.ends, f"{kind} of job {jobid}, which is released"
            self.told_start |= {jobid} if kind in ("start", "reattached") else set()
            self.finishes[jobid] += kind == "finish"
            if kind == "release" and payload["data"]["final"]:
                self.ends[jobid] += 1
                log = [*running(48.0, userid=OWNER_USERID), *ending(48.0)]
                self.kvs.spaces["primary"][job_key(jobid, "eventlog")] = format_eventlog(log)
                if self.rng.random() < 0.5:
                    released = event("release", ranks="0", final=True)
                    self.service.tell_journal(jobid, released)
        self.ntold = len(self.service.told)

    def act(self) -> None:
        acts = {
            self.start: 4,
            self.ask_again: 4,
            self.answer_one: 14,
            self.answer_all: 2,
            self.host: 8,
            self.write: 10,
            self.end: 4,
            self.cancel: 1,
            self.lose_host: 1,
            self.kill: 2,
        }
        (act,) = self.rng.choices(list(acts), list(acts.values()))
        act()
        self.look()

    # At rest

    def rest(self) -> None:
        """Everybody answers, and all tasks end."""
        while True:
            before = (len(self.service.told), len(self.service.shell), len(self.kvs.requests))
            self.service.let_go()
            self.host()
            for jobid in self.running():
                self.end_job(jobid, 0)
            self.service.poll()
            self.look()
            if before == (len(self.service.told), len(self.service.shell), len(self.kvs.requests)):
                break

    def output(self, jobid: int) -> str:
        return self.service.output(jobid)["stdout"]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for output and a number of copies that are soon used up."""
    monkeypatch.setattr(copying, "COPY_BYTES_MAX", WHOLE_BYTES + 8)
    monkeypatch.setattr(copying, "COPIES_MAX", 2)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_end_is_told_once_and_output_is_whole_in_every_order(seed: int) -> None:
    world = World(seed)
    world.service.hold()
    for _ in range(ACTS):
        world.act()
    world.rest()
    assert world.asked - world.canceled <= world.ends.keys(), "a job's end was never told"
    assert max(world.finishes.values(), default=0) <= 1
    assert max(world.launches.values(), default=0) <= 1 + len(world.lost)
    assert list(world.kvs.spaces) == ["primary"], "a namespace was left"
    for jobid in world.ends.keys() - world.canceled - world.lost:
        written = world.files.get((jobid, 0, "stdout"), b"").decode()
        assert world.output(jobid) == (written[:LIMIT] if jobid % 2 else written)
        events = Counter(world.service.events(jobid))
        del events["reattach"]
        assert set(events.values()) == {1}
        assert world.service.events(jobid)[-1] == "done"
    assert not world.running()
    world.ask(LAST)  # no slot is taken by what was before
    world.host()
    for _ in range(6):
        world.write()
    world.rest()
    assert world.ends[LAST] == world.finishes[LAST] == 1
    assert world.output(LAST) == world.files[LAST, 0, "stdout"].decode()
