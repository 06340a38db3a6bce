"""Textbook FIFO, EASY and conservative backfill on whole nodes, as plainly as they can be written.

They share nothing with `flux_trio.policies` but the rules: a job that starts now takes the lowest
ranks, and a reservation takes the nodes that come back last, the lowest ranks among equals. Node
sets are integers. Every job has one priority and ends at its limit or before.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

RESERVED_MAX = 64  # jobs with a place under conservative backfill


@dataclass(frozen=True)
class RefJob:
    """A job in order of arrival: nodes, limit and run time in seconds, and when it comes."""

    id: int
    nnodes: int
    limit: float
    lasts: float
    arrives: float


@dataclass(frozen=True)
class Span:
    """Nodes in use, or promised, from a time to another."""

    start: float
    end: float
    nodes: int


@dataclass
class Machine:
    """Who runs and who waits at `now`."""

    nodes: int
    now: float = 0.0
    queue: list[RefJob] = field(default_factory=list)
    running: dict[int, Span] = field(default_factory=dict)
    started: dict[int, tuple[float, int]] = field(default_factory=dict)
    promised: dict[int, Span] = field(default_factory=dict)
    first_promise: dict[int, float] = field(default_factory=dict)
    ended: bool = False  # a job ended since the last decision

    @property
    def free(self) -> int:
        """The nodes that nobody uses."""
        free = (1 << self.nodes) - 1
        for span in self.running.values():
            free &= ~span.nodes
        return free

    def start(self, job: RefJob, nodes: int) -> None:
        """Let `job` run on `nodes`."""
        self.queue.remove(job)
        self.promised.pop(job.id, None)
        self.running[job.id] = Span(self.now, self.now + job.limit, nodes)
        self.started[job.id] = (self.now, nodes)


Decide = Callable[[Machine], None]


def replay(jobs: list[RefJob], nodes: int, decide: Decide) -> Machine:
    """Let the jobs come and go; ends before arrivals, then one decision at each time."""
    machine = Machine(nodes)
    arrivals = sorted(jobs, key=lambda job: (job.arrives, job.id))[::-1]
    ends: list[tuple[float, int]] = []
    by_id = {job.id: job for job in jobs}
    while arrivals or ends:
        machine.now = min([*(job.arrives for job in arrivals[-1:]), *(end for end, _ in ends[:1])])
        machine.ended = False
        while ends and ends[0][0] <= machine.now:
            del machine.running[heapq.heappop(ends)[1]]
            machine.ended = True
        while arrivals and arrivals[-1].arrives <= machine.now:
            machine.queue.append(arrivals.pop())
        before = set(machine.running)
        decide(machine)
        for jobid in set(machine.running) - before:
            heapq.heappush(ends, (machine.now + by_id[jobid].lasts, jobid))
    return machine


def lowest(nodes: int, count: int) -> int:
    """The `count` lowest nodes; all of them when there are fewer."""
    if nodes.bit_count() <= count:
        return nodes
    ranks = [rank for rank in range(nodes.bit_length()) if nodes >> rank & 1]
    return sum(1 << rank for rank in ranks[:count])


def last_back(nodes: int, count: int, spans: list[Span]) -> int:
    """The `count` nodes that come back last; those that nobody uses are the very last choice."""
    chosen = 0
    for span_end in sorted({span.end for span in spans}, reverse=True):
        back = 0
        for span in spans:
            if span.end == span_end:
                back |= span.nodes
        chosen |= lowest(back & nodes & ~chosen, count - chosen.bit_count())
        if chosen.bit_count() == count:
            return chosen
    return chosen | lowest(nodes & ~chosen, count - chosen.bit_count())


def fifo(machine: Machine) -> None:
    """Start jobs from the head on until one does not fit."""
    while machine.queue and machine.queue[0].nnodes <= machine.free.bit_count():
        head = machine.queue[0]
        machine.start(head, lowest(machine.free, head.nnodes))


def easy(machine: Machine) -> None:
    """As FIFO; then each job that does not delay the head starts."""
    fifo(machine)
    if not machine.queue:
        return
    head, *behind = machine.queue
    start = _when_back(machine, head.nnodes)
    machine.first_promise.setdefault(head.id, start)
    free = machine.free
    for job in behind:
        if job.nnodes > free.bit_count():
            continue
        allowed = free
        if machine.now + job.limit > start:
            over = [span for span in machine.running.values() if span.end <= start]
            then = free
            for span in over:
                then |= span.nodes
            allowed &= ~last_back(then, head.nnodes, over)
        if job.nnodes <= allowed.bit_count():
            machine.start(job, lowest(allowed, job.nnodes))
            free = machine.free


def _when_back(machine: Machine, count: int) -> float:
    missing = count - machine.free.bit_count()
    for span in sorted(machine.running.values(), key=lambda span: span.end):
        missing -= span.nodes.bit_count()
        if missing <= 0:
            return span.end
    raise AssertionError("the job is larger than the machine")


def conservative(machine: Machine) -> None:
    """When a job ended or came, each job in turn gets the earliest place, or keeps the one it has.

    A job behind may leave a place that one ahead can use. The one ahead is then asked first in the
    next turn, also when that turn is due to a job that came.
    """
    first = machine.queue[:RESERVED_MAX]
    if not machine.ended and all(job.id in machine.promised for job in first):
        return
    plan = Plan(machine)
    place = 0
    while place < min(len(machine.queue), RESERVED_MAX):
        job = machine.queue[place]
        own = machine.promised.get(job.id)
        best = plan.earliest(job, own) or own
        assert best is not None
        if own is not best:
            plan.change(own, best)
        machine.first_promise.setdefault(job.id, best.start)
        if best.start <= machine.now:
            machine.start(job, best.nodes)
        else:
            machine.promised[job.id] = best
            place += 1


class Plan:
    """The free nodes from now on, span by span."""

    def __init__(self, machine: Machine) -> None:
        self.now = machine.now
        self.spans = [*machine.running.values(), *machine.promised.values()]
        self.times = sorted({self.now, *(t for s in self.spans for t in (s.start, s.end))})
        self.times = [time for time in self.times if time >= self.now]
        self.free = [(1 << machine.nodes) - 1] * len(self.times)
        for span in self.spans:
            self._take(span)

    def _index(self, time: float) -> int:
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at

    def _take(self, span: Span) -> None:
        for at in range(self._index(max(span.start, self.now)), self._index(span.end)):
            self.free[at] &= ~span.nodes

    def change(self, old: Span | None, new: Span) -> None:
        """Give `old` back and take `new`."""
        if old is not None:
            self.spans.remove(old)
            for at in range(self._index(old.start), self._index(old.end)):
                self.free[at] |= old.nodes
        self.spans.append(new)
        self._take(new)

    def earliest(self, job: RefJob, own: Span | None) -> Span | None:
        """The first place before the job's own, whose nodes count as free."""
        before = math.inf if own is None else own.start
        for at, start in enumerate(self.times):
            if start >= before:
                return None
            end, free, later = start + job.limit, -1, at
            while free.bit_count() >= job.nnodes or free == -1:
                if later == len(self.times) or self.times[later] >= end:
                    over = [s for s in self.spans if s.end <= start and s is not own]
                    return Span(start, end, last_back(free, job.nnodes, over))
                mine = own.nodes if own and own.start <= self.times[later] < own.end else 0
                free &= self.free[later] | mine
                later += 1
        return None
