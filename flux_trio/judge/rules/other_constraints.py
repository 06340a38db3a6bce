"""RFC 31 on allocations: the targets of a job match the constraints of its jobspec.

What properties and hosts a target has is known from the inventory that the scheduler has acquired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from flux_trio.formats import Idset
from flux_trio.judge.checks.constraints import Targets, failing, operators
from flux_trio.judge.checks.jobspecs import system
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import EVENT, job_id, logged, payload, sent
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.resource_sets import (
    ALLOCATING,
    HOSTS,
    allocated,
    hosts_by_target,
    targets_of,
)
from flux_trio.judge.views.resources import AS_RECEIVED, as_received
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()


class Constrained(NamedTuple):
    """A job whose jobspec has constraints."""

    n: Place
    """The record of its latest sched.alloc."""
    constraint: str
    """The constraint as JSON text."""


def _fold_constrained(_old: Any, _part: None, record: Record, _seen: Seen) -> Constrained | None:
    found = system(payload(record).get("jobspec")).get("constraints")
    if record.kind == EVENT or not isinstance(found, dict):
        return None
    return Constrained(record.n, json.dumps(found))


CONSTRAINED: Final = view(
    "constrained",
    sent("request", topics.SCHED_ALLOC),
    logged("clean"),
    key=job_id,
    fold=_fold_constrained,
    state=Constrained,
)
"""The jobs with constraints (`Constrained`), by job id."""


class AllocatedTargets(NamedTuple):
    """The targets that a job got, and which parts of its constraints they do not match."""

    what: str
    jobid: int | None
    targets: Idset
    asked: Place
    operators: set[str]
    failing: dict[str, tuple[Any, Idset]]
    """By operator that does not match all targets: its values, and the targets that match it."""


def _got(record: Record, seen: Seen) -> Iterable[AllocatedTargets]:
    for r in allocated(record):
        known: Constrained | None = seen.at(CONSTRAINED, r.jobid)
        targets = targets_of(r.value)
        if known is None or not targets:
            continue
        had = as_received(seen, record.party) or as_received(seen, seen.facts.scheduler)
        properties = None if had is None or not had.grown else dict(had.properties)
        constraint = json.loads(known.constraint)
        there = Targets(targets, hosts_by_target(seen), properties)
        missed = {each: (values, matched) for each, values, matched in failing(constraint, there)}
        yield AllocatedTargets(r.what, r.jobid, targets, known.n, operators(constraint), missed)


def _require(clause: str, operator: str) -> None:
    """Register `clause`: the targets of a job match what has this operator."""

    @RULES.each(clause, ALLOCATING, of=_got, views=(CONSTRAINED, HOSTS, AS_RECEIVED))
    def judge(got: AllocatedTargets) -> Finding:
        if operator not in got.failing:
            return operator in got.operators
        values, matched = got.failing[operator]
        name = "properties" if operator == "^" else operator
        text = f"constraints: {name} {values!r:.80}: expected targets of {matched or 'none'}"
        return Broken(f"{got.what}: {text}, got {got.targets}", (got.asked,), job=got.jobid)


_require("31.constraints.2", "properties")
_require("31.constraints.3", "^")
_require("31.constraints.4", "hostlist")
_require("31.constraints.5", "ranks")
_require("31.constraints.6", "not")
_require("31.constraints.7", "or")
_require("31.constraints.8", "and")
