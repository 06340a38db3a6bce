"""Draws meetings of requests and faults that neither single draws nor other meetings make likely.

Each is of two parties that agree on a value while one of them is away or slow: the order of jobs in
limited mode, the end of a job that has none any more, nodes that are down across restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from flux_trio.lab import catalogue as c
from flux_trio.lab.catalogue import Fault, When
from flux_trio.lab.plans.combined_faults import AWAY_S, Coincidence, Table, table_of
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import Action, OwnerRequest
from flux_trio.messages import topics

_ADMIN: Final[tuple[tuple[Action, str], ...]] = (
    ("down", topics.RESOURCE_DOWN),
    ("drain", topics.RESOURCE_DRAIN),
    ("queue-stop", topics.JOB_QUEUE_START),
    ("queue-disable", topics.JOB_QUEUE_ENABLE),
)


def draw_rarely_met(draw: Random, plan: Plan) -> Coincidence:
    """Return faults and requests; in four of five cases none."""
    if not plan.jobs or draw.random() < 0.8:
        return (), ()
    kinds = _KINDS if plan.limit else _KINDS[1:]
    return draw.choice(kinds)(table_of(draw, plan))


def _sent_jobs_change(table: Table) -> Coincidence:
    """Limited mode: jobs that were sent sink below those that wait, and others rise."""
    draw = table.draw
    asked = []
    for _ in range(draw.randint(2, 6)):
        when = When(topics.SCHED_ALLOC, table.some(), "send", "request")
        job, at = draw.randrange(len(table.jobs)), round(draw.uniform(0, table.span_s), 1)
        asked.append(
            OwnerRequest(at, "urgency", job=job, value=draw.choice((1, 5, 16, 20, 31)), when=when)
        )
    return (), tuple(asked)


def _jobs_never_end(table: Table) -> Coincidence:
    """Jobs lose their time limits when they start or later; the scheduler plans with that."""
    draw = table.draw
    asked = []
    for job in draw.sample(range(len(table.jobs)), min(2, len(table.jobs))):
        when = When("job-exec.start", table.some(), "recv", "response")
        for seconds in draw.choice(((0.0,), (60.0, 0.0), (0.0, 10.0))):
            at = round(draw.uniform(0, table.span_s), 1)
            asked.append(OwnerRequest(at, "duration", job=job, seconds=seconds, when=when))
    return (), tuple(asked)


def _duration_across_a_reload(table: Table) -> Coincidence:
    """The next job manager sends its starts while the execution service takes one message after
    the other, and durations change before and after.
    """
    draw = table.draw
    started = When("job-exec.start", table.some(), "recv", "response")
    away: Fault = draw.choice(
        (c.Reload("job-manager", started), c.Crash("job-manager", started, draw.choice(AWAY_S)))
    )
    again = When("job-exec.start", len(table.jobs), "recv", "request")
    slow = c.Slow("job-exec", started, 0.1, 10.0)
    asked = [
        OwnerRequest(
            round(draw.uniform(0, table.span_s), 1), "duration", job=job, seconds=60.0, when=when
        )
        for job in draw.sample(range(len(table.jobs)), min(3, len(table.jobs)))
        for when in (started, again)
    ]
    return (away, slow), tuple(asked)


def _nodes_down_across_restarts(table: Table) -> Coincidence:
    """Nodes are down while the instance, or the service that knows of it, is started again."""
    draw = table.draw
    when = When("job-exec.start", table.some(), "recv", draw.choice(("request", "response")))
    down: Fault = draw.choice(
        (c.NodesDown(table.ranks(), when, draw.choice((5.0, 60.0))), c.NodesUp(table.ranks(), when))
    )
    again: Fault = draw.choice(
        (
            c.RestartInstance(when, draw.choice((0.0, 3.0))),
            c.KillInstance(when, draw.choice((0.0, 3.0))),
            c.Reload("resource", when),
            c.CrashTogether(("resource", "sched"), when, draw.choice(AWAY_S)),
        )
    )
    return (down, again), ()


def client_leaves_while_the_kvs_is_slow(table: Table) -> Coincidence:
    """The owner changes nodes or queues, and the answer waits for a commit when he is gone."""
    draw = table.draw
    what, topic = draw.choice(_ADMIN)
    when = When(topic, 1, "recv", "request")
    slow = c.SlowDisk(when, draw.choice((0.5, 2.0)), 10.0)
    late = draw.choice((None, 1.0))
    return (slow, c.LoseClient(when, 0.5, late)), tuple(table.asked(None, what))


_KINDS: Final[tuple[Callable[[Table], Coincidence], ...]] = (
    _sent_jobs_change,  # only with a limit
    _jobs_never_end,
    _duration_across_a_reload,
    _nodes_down_across_restarts,
    client_leaves_while_the_kvs_is_slow,
)
