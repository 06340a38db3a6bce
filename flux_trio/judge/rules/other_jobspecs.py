"""RFC 14, 25 and 26 on jobspecs: the jobspec that the job manager sends to the scheduler is valid.

It is judged in sched.alloc, where every implementation shows it. The clauses of RFC 14 on
submission are judged where a jobspec is submitted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from flux_trio.judge.checks.jobspecs import (
    PROBLEMS,
    RESERVED,
    common_part,
    known_by_value,
    problem_with,
    problems_of,
    schema_problem,
    system,
    task,
)
from flux_trio.judge.checks.shapes import members, part
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    EVENT,
    OWN,
    errnum,
    job_id,
    logged,
    payload,
    received,
    rpc,
    sent,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, Trait, view
from flux_trio.judge.views.eventlogs import LOG, is_open_at_its_end
from flux_trio.judge.views.execution import START, STARTS, Start, kind_of_answer
from flux_trio.judge.views.traits import says
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

RULES: Final = Rules()

ASKED: Final = sent("request", topics.SCHED_ALLOC)


def _has(*keys: str) -> Callable[[Any], bool]:
    return lambda jobspec: any(key in system(jobspec) for key in keys)


# Sentences about optional parts; the others concern every jobspec.
ABOUT: Final[dict[str, Callable[[Any], bool]]] = {
    "25.tasks.3": lambda jobspec: "per_slot" in part(task(jobspec), "count", dict),
    "25.tasks.4": lambda jobspec: "total" in part(task(jobspec), "count", dict),
    "14.attributes.6": _has("dependencies"),
    "14.attributes.7": _has("constraints"),
    "14.attributes.8": _has("preemptible-after"),
    "26.format.1": _has("dependencies"),
    "26.format.3": _has("dependencies"),
    "26.schemes.8": lambda jobspec: any(
        each.get("scheme") in RESERVED for each in members(system(jobspec).get("dependencies"))
    ),
}


class Spec(Live, frozen=True, gc=False):
    """A jobspec, with what the clauses on jobspecs find wrong in it."""

    broken: tuple[str, ...]
    optional: tuple[str, ...]
    """The clauses of `ABOUT` whose subject this jobspec has."""


def _spec(record: Record, _seen: Seen) -> Spec | None:
    found = payload(record).get("jobspec")
    if not isinstance(found, dict):
        return None
    return Spec(tuple(problems_of(found)), _optional(common_part(found)))


@known_by_value
def _optional(jobspec: Any) -> tuple[str, ...]:
    return tuple([clause for clause, concerns in ABOUT.items() if concerns(jobspec)])


SPEC: Final = Trait("jobspec", tuple(ASKED), _spec)


def _require(clause: str, problem: Callable[[Mapping[str, str]], str | None]) -> None:
    """`clause`: among what is wrong with the jobspec of a sched.alloc is not the problem."""

    @RULES.by(SPEC, clause, ASKED)
    def judge(spec: Spec | None, record: Record, _seen: Seen) -> Finding:
        if spec is None or (clause in ABOUT and clause not in spec.optional):
            return None
        if not spec.broken:
            return True
        found = problem(problems_of(payload(record)["jobspec"]))
        return True if found is None else Broken(f"jobspec of job {job_id(record)}: {found}")


for _clause in PROBLEMS:
    _require(_clause, operator.methodcaller("get", _clause))
_require("25.attributes.5", schema_problem)


# --- what comes in


def _fold_malformed(
    _was: Any, _part: None, record: Record, _seen: Seen
) -> tuple[Place, str] | None:
    if not isinstance(record.message, Request) or "J" in payload(record):
        return None  # a signed jobspec is not read
    found = problem_with(payload(record).get("jobspec"))
    return None if found is None else (record.n, found)


MALFORMED: Final = view(
    "malformed",
    received("request", topics.INGEST_SUBMIT),
    sent("response", topics.INGEST_SUBMIT),
    key=rpc,
    fold=_fold_malformed,
)
"""By RPC: the record of an open submission of a malformed jobspec, and the first error in it."""


@RULES.judge("14.submit.1", sent("response", topics.INGEST_SUBMIT), views=[MALFORMED])
def malformed_jobspecs_are_rejected(record: Record, seen: Seen) -> Finding:
    malformed: tuple[Place, str] | None = seen.at(MALFORMED, rpc(record))
    if malformed is None:
        return None
    if errnum(record):
        return True
    n, problem = malformed
    return Broken(f"job-ingest.submit: expected an error: jobspec: {problem}", (n,))


# --- what cannot be done


def _fold_failed(n: int | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if record.kind == EVENT:
        return None
    start: Start | None = seen.at(STARTS, job_id(record))
    has_started = start is not None and (start.reattach or start.place("start", received=True))
    return record.n if kind_of_answer(record) == "fatal" and not has_started else n


FAILED: Final = view(
    "failed starts",
    received("response", START, mark=says("exception")),
    while_live(OWN, logged("start", "free", "clean")),
    key=job_id,
    fold=_fold_failed,
    reads=(STARTS,),
)
"""By job id: the record of the fatal exception of a job that the execution service could not
start."""


def _not_freed(seen: Seen) -> Iterator[Broken]:
    for jobid, n in seen.all(FAILED).items():
        if is_open_at_its_end(jobid, seen):
            continue  # an epilog holds the resources
        text = "a job could not be started: expected a free event, none was logged"
        yield Broken(text, (n,), job=jobid)


@RULES.judge(
    "14.submit.4", while_live(FAILED, logged("free")), views=[FAILED, LOG], debts=_not_freed
)
def what_cannot_start_gives_its_resources_back(record: Record, seen: Seen) -> Finding:
    return seen.at(FAILED, job_id(record)) is not None
