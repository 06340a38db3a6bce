"""Checks of a plan that its types do not make: most of them look at several values.

A plan names the jobs, queues, nodes and cores of its world by their numbers, and all must be there.
Only a job may ask for ranks that are not there: then it never runs.
"""

from __future__ import annotations

import difflib
from typing import Final

from msgspec.structs import replace

from flux_trio.formats import FormatError
from flux_trio.formats.errors import Words
from flux_trio.formats.glob import Glob, is_glob
from flux_trio.jobtap.catalogue import HOOKS, hook_of
from flux_trio.lab.catalogue import (
    BREACHES,
    UNBREAKABLE,
    AlsoAsked,
    BrokenClause,
    ClockDrift,
    ClockJump,
    CrashLoop,
    Drain,
    ErrorAnswer,
    Exclude,
    Fault,
    GrantForeign,
    GrantOverlap,
    NodesDown,
    NodesUp,
    PluginFault,
    Repeated,
    Shrink,
    Sleep,
    StrayAnswer,
    Which,
    WrongRequest,
    WrongType,
)
from flux_trio.lab.catalogue.base import BUSY_S, LONGEST_S
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JOB_ACTIONS
from flux_trio.messages import topics

OF_NODES: Final = NodesDown | NodesUp | Drain | Shrink | Exclude
"""The faults that have `ranks`."""

_BETWEEN_MODULES: Final = frozenset(
    {
        topics.SCHED_HELLO,
        topics.SCHED_READY,
        topics.EXEC_HELLO,
        topics.SCHED_ALLOC,
        topics.SCHED_CANCEL,
        topics.SCHED_PRIORITIZE,
        topics.SCHED_EXPIRATION,
        topics.SCHED_FREE,
        topics.RESOURCE_ACQUIRE,
        topics.RESOURCE_RELEASE,
        f"{topics.JOB_EXEC}.{topics.START_METHOD}",
    }
)
"""The requests of RFC 27, 28 and 32: who sends one is bound by their clauses."""


def check_fitting(plan: Plan) -> None:
    """Raise FormatError if the plan says what its world cannot have."""
    for place, job in enumerate(plan.jobs):
        if job.queue is not None:
            _check(job.queue, _queues(plan), f"jobs[{place}].queue")
    for place, asked in enumerate(plan.actions):
        if asked.what in JOB_ACTIONS:
            jobs = ("the place of one of the {} jobs", len(plan.jobs))
            _check(asked.job, jobs, f"actions[{place}].job")
        if asked.queue is not None:
            _check(asked.queue, _queues(plan), f"actions[{place}].queue")
        _check(asked.rank, _nodes(plan), f"actions[{place}].rank")
    for place, fault in enumerate(plan.faults):
        _check_fault(plan, fault, f"faults[{place}]")
    _check_clock(plan.faults)


def on_machine(plan: Plan, **sizes: int) -> Plan:
    """Return the plan with fewer `nnodes` or `cores`: the last one is named for those gone."""
    smaller = replace(plan, **sizes)
    rank, core = smaller.nnodes - 1, smaller.cores - 1
    return replace(
        smaller,
        actions=tuple(replace(each, rank=min(each.rank, rank)) for each in plan.actions),
        faults=tuple(_on_machine(each, rank, core) for each in plan.faults),
    )


def _on_machine(fault: Fault, last_rank: int, last_core: int) -> Fault:
    if isinstance(fault, GrantOverlap):
        return replace(fault, rank=min(fault.rank, last_rank), core=min(fault.core, last_core))
    if isinstance(fault, OF_NODES):
        ranks = dict.fromkeys(min(rank, last_rank) for rank in fault.ranks)
        return replace(fault, ranks=tuple(ranks))
    return fault


def _check_fault(plan: Plan, fault: Fault, where: str) -> None:
    match fault:
        case NodesDown() | NodesUp() | Drain() | Shrink() | Exclude():
            for place, rank in enumerate(fault.ranks):
                _check(rank, _nodes(plan), f"{where}.ranks[{place}]")
        case GrantOverlap() | GrantForeign() | BrokenClause():
            _check_lie(plan, fault, where)
        case ErrorAnswer() | WrongType() | StrayAnswer() if fault.which.type != "response":
            raise FormatError("response", fault.which.type, f"{where}.which.type")
        case Repeated() if fault.which.type == "request":
            # of two requests with one matchtag nobody can say which one an answer is for
            raise FormatError("response or event", fault.which.type, f"{where}.which.type")
        case CrashLoop():
            if fault.times * fault.every > BUSY_S:
                expected = f"at most {BUSY_S:.0f} seconds for {fault.times} times together"
                raise FormatError(expected, fault.times * fault.every, f"{where}.every")
        case WrongRequest() | AlsoAsked():
            service, *method = fault.topic.split(".")
            if not (service and method and all(method)):
                expected = f"a topic such as {topics.JOB_RAISE}"
                raise FormatError(expected, fault.topic, f"{where}.topic")
            if isinstance(fault, WrongRequest):
                _check_clients(fault.topic, f"{where}.topic")
        case PluginFault():
            _check_hook(fault.hook, f"{where}.hook")


def _check_clients(topic: str, where: str) -> None:
    """Raise FormatError unless a client may ask so: else the client breaks clauses itself."""
    if topic in _BETWEEN_MODULES:
        expected = f"a topic that clients ask, such as {topics.JOB_RAISE}"
        raise FormatError(f"{expected} (a module asks this one: see AlsoAsked)", topic, where)
    if topic.endswith("-cancel"):
        expected = f"a topic that is answered, such as {topics.JOB_RAISE}"
        raise FormatError(f"{expected} (a cancel is not: RFC 6)", topic, where)


def _check_hook(topic: str, where: str) -> None:
    """Raise FormatError unless plugins are asked about this topic, and about a job.

    A plugin that fails at `conf.update` is not loaded, and nobody queries one.
    """
    if hook_of(topic).parameters[:1] == ("job",) and not is_glob(topic):
        return
    expected = "a hook about a job"
    spelled = [each.topic for each in HOOKS if each.parameters[:1] == ("job",)]
    if close := difflib.get_close_matches(topic, spelled, n=1):
        expected += f" (did you mean {close[0]}?)"
    raise FormatError(f"{expected}: {', '.join(spelled)}", topic, where)


def _check_lie(plan: Plan, fault: GrantOverlap | GrantForeign | BrokenClause, where: str) -> None:
    match fault:
        case GrantOverlap():
            _check(fault.rank, _nodes(plan), f"{where}.rank")
            cores = ("the number of one of the {} cores of a node", plan.cores)
            _check(fault.core, cores, f"{where}.core")
            _check_grant(fault.which, f"{where}.which")
        case GrantForeign():
            if fault.rank < plan.nnodes:
                expected = f"a rank that none of the {plan.nnodes} nodes has"
                raise FormatError(expected, fault.rank, f"{where}.rank")
            _check_grant(fault.which, f"{where}.which")
        case BrokenClause():
            _check_breakable(fault.clause, f"{where}.clause")


def _check_breakable(clause: str, where: str) -> None:
    """Raise FormatError if there is no lie that breaks the clause; it names those near to it."""
    if clause in BREACHES:
        return
    section = clause.rpartition(".")[0]
    near = [each for each in BREACHES if each.startswith(f"{section}.")]
    expected = "a clause of the section Break a chosen clause of docs/reference/faults.md"
    if near:
        expected += f", such as {', '.join(near)}"
    if clause in UNBREAKABLE:
        expected += f" ({clause} is not there: {UNBREAKABLE[clause]})"
    raise FormatError(expected, clause, where)


def _check_grant(which: Which, where: str) -> None:
    """Raise FormatError if this cannot be the message by which the scheduler stores an R."""
    is_commit = which.type == "request" and Glob(which.topic).matches(topics.KVS_COMMIT)
    if not is_commit or which.party not in ("", topics.SCHED):
        got = Words(f"a {which.type} {which.topic}" + (f" of {which.party}" * bool(which.party)))
        raise FormatError(f"a request {topics.KVS_COMMIT} of {topics.SCHED}", got, where)


def _nodes(plan: Plan) -> tuple[str, int]:
    return "the rank of one of the {} nodes", plan.nnodes


def _queues(plan: Plan) -> tuple[str, int]:
    return "the number of one of the {} named queues", plan.queues


def _check(number: int, among: tuple[str, int], where: str) -> None:
    """Raise FormatError unless `number` is one of so many, counted from 0."""
    expected, count = among
    if number >= count:
        raise FormatError(f"{expected.format(count)}, from 0", number, where)


def _check_clock(faults: tuple[Fault, ...]) -> None:
    """Raise FormatError if the faults together may move the clock by more than LONGEST_S."""
    moved = 0.0
    for place, fault in enumerate(faults):
        match fault:
            case ClockJump(by=by):
                name, seconds = "by", abs(by)
            case ClockDrift(by=by, times=times):
                name, seconds = "by", abs(by) * times
            case Sleep(seconds=seconds):
                name = "seconds"
            case _:
                continue
        moved += seconds
        if moved > LONGEST_S:
            expected = f"at most {LONGEST_S:.0f} seconds by which all faults of time move the clock"
            raise FormatError(expected, moved, f"faults[{place}].{name}")
