"""What is rarely met in worlds: seeds draw it, and it occurs there, as each record of it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from flux_trio.lab import LoseClient, NodesDown, NodesUp, Plan, Setup, SlowDisk, draw_plan, run_plan
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

SEEDS = range(600)
PLAYED = 20  # worlds of each kind, at most
ADMIN = (topics.RESOURCE_DOWN, topics.RESOURCE_DRAIN)
ADMIN += (topics.JOB_QUEUE_START, topics.JOB_QUEUE_ENABLE)


def _kinds(plan: Plan) -> set[str]:
    return {str(type(each).__struct_config__.tag) for each in plan.faults}


def _has(plan: Plan, *kinds: type) -> bool:
    return all(any(isinstance(each, kind) for each in plan.faults) for kind in kinds)


def _wants(plan: Plan, what: str, **fields: Any) -> int:
    return sum(
        each.what == what and all(getattr(each, k) == v for k, v in fields.items())
        for each in plan.actions
    )


def _is_down_across_restarts(plan: Plan) -> bool:
    again = {"restart-instance", "kill-instance"}
    return bool(_kinds(plan) & again) and (_has(plan, NodesDown) or _has(plan, NodesUp))


def _updates_across_reload(plan: Plan) -> bool:
    away = [each for each in plan.faults if getattr(each, "module", "") == topics.JOB_MANAGER]
    return bool(away) and _wants(plan, "duration") > 1


DRAWN: dict[str, Callable[[Plan], bool]] = {
    "a sent job sinks": lambda plan: plan.limit > 0 and _wants(plan, "urgency") > 1,
    "a running job gets no end": lambda plan: bool(_wants(plan, "duration", seconds=0.0)),
    "a duration changes across a reload": _updates_across_reload,
    "a node is down across a restart": _is_down_across_restarts,
    "a client leaves while the disk is slow": lambda plan: _has(plan, SlowDisk, LoseClient),
}


class Noted:
    """Notes which of these occur in one world."""

    def __init__(self) -> None:
        self.occurred: set[str] = set()
        self.sent: set[int] = set()  # jobs with an open sched.alloc
        self.urgencies: dict[int, int] = {}
        self.limited = False
        self.allocated: set[int] = set()
        self.updated: set[int] = set()  # jobs whose end has moved
        self.ends: dict[str, int] = {}  # of modules, and of the whole instance
        self.down = False
        self.open: set[tuple[str, int]] = set()  # requests of an administrator

    def observe(self, record: Record) -> None:
        match record.kind, record.message:
            case Kind.SEND, Request() as request:
                self._asked(request)
            case Kind.SEND, Response() as response:
                self._answered(response)
            case Kind.EVENT, _:
                self._logged(record.data or {})
            case Kind.MODULE, _:
                data = record.data or {}
                if data["what"] in ("crashed", "stopped", "killed", "removed", "reloaded"):
                    self.ends[data["module"]] = record.n
            case _:
                pass

    def _asked(self, request: Request) -> None:
        payload: Any = request.payload
        if request.topic == topics.SCHED_READY:
            self.limited = payload["mode"] == "limited"
        elif request.topic == topics.SCHED_ALLOC:
            self.sent.add(payload["id"])
        elif request.topic in ADMIN:
            self.open.add((request.sender, request.matchtag))
        elif request.topic.endswith(f".{topics.DISCONNECT}") and any(
            sender == request.sender for sender, _ in self.open
        ):
            self.occurred.add("a client leaves while the disk is slow")

    def _answered(self, response: Response) -> None:
        payload: Any = response.payload
        if response.topic == topics.SCHED_ALLOC and not response.errnum and payload["type"] != 1:
            self.sent.discard(payload["id"])
        elif response.topic in ADMIN and response.routes:
            self.open.discard((response.routes[0], response.matchtag))
        elif response.topic == topics.RESOURCE_ACQUIRE and not response.errnum:
            is_down = bool(payload.get("down") or payload.get("offline"))
            if "resources" in payload and topics.RESOURCE in self.ends and self.down:
                self.occurred.add("a node is down across a restart")
            self.down |= is_down

    def _logged(self, data: dict[str, Any]) -> None:
        jobid, name = data["id"], data["name"]
        if name in ("submit", "urgency"):
            urgency = data["context"]["urgency"]
            is_lower = urgency < self.urgencies.get(jobid, 0)
            if self.limited and jobid in self.sent and is_lower:
                self.occurred.add("a sent job sinks")
            self.urgencies[jobid] = urgency
        elif name == "alloc":
            self.allocated.add(jobid)
        elif name == "resource-update" and jobid in self.allocated:
            if not data["context"]["expiration"]:
                self.occurred.add("a running job gets no end")
            if jobid in self.updated and topics.JOB_MANAGER in self.ends:
                self.occurred.add("a duration changes across a reload")
            self.updated.add(jobid)


def test_seeds_draw_what_is_rarely_met() -> None:
    count: Counter[str] = Counter()
    for seed in SEEDS:
        plan = draw_plan(seed)
        count.update(name for name, is_drawn in DRAWN.items() if is_drawn(plan))
    assert set(count) == set(DRAWN)
    assert min(count.values()) >= 12


@pytest.mark.gate
def test_what_is_rarely_met_occurs_where_it_is_drawn() -> None:
    """At most `PLAYED` worlds that draw it are needed until it occurs."""
    left = dict.fromkeys(DRAWN, PLAYED)
    for seed in SEEDS:
        plan = draw_plan(seed)
        names = [name for name, is_drawn in DRAWN.items() if name in left and is_drawn(plan)]
        if names:
            noted = Noted()
            outcome = run_plan(plan, [noted.observe], properties=Setup().all_properties())
            assert outcome.problems == (), seed
            left = {
                name: count - (name in names)
                for name, count in left.items()
                if name not in noted.occurred
            }
            assert min(left.values(), default=1) > 0, left
    assert left == {}
