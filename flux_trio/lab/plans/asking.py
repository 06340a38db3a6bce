"""Draws rarer requests of the owner: new durations, with faults that meet them, requests that stay
open for long, and subscriptions.
"""

from __future__ import annotations

from random import Random
from typing import Final

from flux_trio.lab import catalogue as c
from flux_trio.lab.catalogue import Fault, When
from flux_trio.lab.catalogue.places import Module, Type
from flux_trio.lab.plans.combined_faults import AWAY_S, Coincidence, Table, table_of
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import SPAN_S, Action, OwnerRequest
from flux_trio.messages import topics

DURATIONS_S: Final = (0.0, 0.5, 2.0, 10.0, 60.0, 300.0)
_LONG: Final[tuple[Action, ...]] = ("watch", "watch", "queue-drain", "queue-idle")


def draw_new_durations(draw: Random, plan: Plan) -> Coincidence:
    """Return requests for new durations of jobs, and faults at that time; mostly none.

    The duration of a running job becomes an expiration, which the scheduler has to accept and of
    which the execution service reads in the journal. The faults end or delay one of these parties.
    """
    if not plan.jobs or draw.random() < 2 / 3:
        return (), ()
    table = table_of(draw, plan)
    asked = [_new_duration(table) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.5:
        return (), tuple(asked)
    topic, type_ = draw.choice(_OF_DURATIONS)
    when = When(topic, draw.choice((1, 1, 2)), draw.choice(("send", "recv")), type_)
    if draw.random() < 0.3:  # the scheduler goes while the request to it waits for a commit
        asked_of = When(topics.JOB_UPDATE, 1, "recv", "request")
        slow = c.SlowDisk(asked[0].when or asked_of, draw.choice((0.1, 1.0)), 5.0)
        lost = c.Crash("sched", asked_of, draw.choice(AWAY_S))
        return (slow, lost), tuple(asked)
    module: Module = draw.choice(("sched", "job-exec", "job-manager"))
    fault: Fault = draw.choice(
        (
            c.Crash(module, when, draw.choice(AWAY_S)),
            c.Reload(module, when),
            c.Linger(module, when, draw.choice((0.5, 2.0))),
            c.SlowDisk(when, draw.choice((0.1, 1.0)), 5.0),
        )
    )
    return (fault,), tuple(asked)


def _new_duration(table: Table) -> OwnerRequest:
    """Return a request: often when a job starts, and now and then so that it ends soon."""
    draw = table.draw
    at, place = round(draw.uniform(0, table.span_s), 1), draw.randrange(len(table.jobs))
    when = None
    if draw.random() < 0.6:
        topic, type_ = draw.choice(_WHILE_A_JOB_STARTS)
        when = When(topic, table.some(), draw.choice(("send", "recv")), type_)
    return OwnerRequest(at, "duration", job=place, seconds=draw.choice(DURATIONS_S), when=when)


_OF_DURATIONS: Final[tuple[tuple[str, Type], ...]] = (
    (topics.JOB_UPDATE, "request"),
    (topics.SCHED_EXPIRATION, "request"),
    (topics.SCHED_EXPIRATION, "response"),
    (topics.JOB_UPDATE, "response"),
)
_WHILE_A_JOB_STARTS: Final[tuple[tuple[str, Type], ...]] = (
    (topics.SCHED_ALLOC, "request"),
    (topics.SCHED_ALLOC, "response"),
    ("job-exec.start", "request"),
    ("job-exec.start", "response"),
    ("job-exec.start", "response"),
)


def draw_long_requests(draw: Random, plan: Plan) -> Coincidence:
    """Return requests whose answer waits for the end of jobs; in three of four cases none."""
    if not plan.jobs or draw.random() < 0.75:
        return (), ()
    table = table_of(draw, plan)
    return (), tuple(_long_request(table, plan.queues) for _ in range(draw.randint(1, 4)))


def _long_request(table: Table, queues: int) -> OwnerRequest:
    draw = table.draw
    at, what = round(draw.uniform(0, table.span_s), 1), draw.choice(_LONG)
    when = table.aim.when() if draw.random() < 0.5 else None
    if what == "watch":
        return OwnerRequest(at, what, job=draw.randrange(len(table.jobs)), when=when)
    queue = draw.randrange(queues) if queues and draw.random() < 0.5 else None
    return OwnerRequest(at, what, queue=queue, when=when)


def draw_subscription(draw: Random, _plan: Plan) -> Coincidence:
    """Return a request for all events, often when the first one is published; mostly none."""
    if draw.random() < 0.8:
        return (), ()
    at = round(draw.uniform(0, SPAN_S), 1)
    when = None
    if draw.random() < 0.7:
        topic = draw.choice(_EVENTS)
        when = When(topic, 1, draw.choice(("send", "recv")), "event")
    return (), (OwnerRequest(at, "subscribe", when=when),)


_EVENTS: Final = (
    topics.JOB_EXCEPTION_EVENT,
    topics.JOB_EXCEPTION_EVENT,
    topics.RESOURCE_OFFLINE_EVENT,
)
