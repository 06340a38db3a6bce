"""Tells what became of a plan as a story: played again, with its trace and the cores' states."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from flux_trio.formats import format_fluid
from flux_trio.jobtap import reporting_failures
from flux_trio.jobtap.failures import describe
from flux_trio.judge import Violation, load_clauses
from flux_trio.judge.rules import CLAUSE_RULES
from flux_trio.lab.catalogue import Fault, SentMessage, When
from flux_trio.lab.plans.plan import DEFAULT_EDITION, Plan
from flux_trio.lab.plans.reached import name_of_fault
from flux_trio.lab.plans.workload import JobPlan, OwnerRequest, meant_by
from flux_trio.lab.properties.property import Property
from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.lab.stories.campaign import PropertyRaised, Setup, main_property, property_errors
from flux_trio.lab.stories.outcome import property_of
from flux_trio.lab.stories.running import run_plan
from flux_trio.lab.stories.states import WatchedRun
from flux_trio.lab.world.plugin_files import plugin_file
from flux_trio.trace import Kind, Record
from flux_trio.views import Change, Story
from flux_trio.views.story import listed

PROPERTIES: Final = {
    "rest": "All comes to rest when no more faults happen.",
    "inactive": "At rest each job is INACTIVE, unless a plugin holds it, or one on which it waits.",
    "answered": "Every request is answered.",
    "read": "Who follows an eventlog to its end is told what is stored, each line once.",
    "error": "No core raises.",
    "plugin": "No handler of a plugin fails.",
    "kept": "A job that was accepted is stored, whatever ends the instance.",
}
"""By name of a property that is not a clause: a sentence that says what it asks for."""


def clause_names() -> frozenset[str]:
    """Return the ids of the clauses and of the invariants."""
    return frozenset(load_clauses()) | {each.clause for each in CLAUSE_RULES}


def property_names() -> frozenset[str]:
    """Return the names of the properties that are no clauses, and no user's."""
    return frozenset(PROPERTIES) | {each.name for each in Setup().all_properties()}


def name_refusal(name: str) -> str:
    """Return why a property of a user cannot have this name; "" if it can."""
    if name not in clause_names() and name not in property_names():
        return ""
    return f"the name {name} is that of a property of flux-trio"


def unknown_text(breaking: Collection[str], more: Collection[str] = ()) -> str:
    """Return what is wrong with the first name of no clause or property, of what a test breaks on
    purpose; "" if each one is known.

    `more` are the names of the user's own properties.
    """
    if not breaking:
        return ""
    clauses, properties = clause_names(), property_names().union(more)
    for name in sorted(set(breaking) - clauses - properties):
        close = difflib.get_close_matches(name, sorted(clauses | properties), n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return (
            "what the test breaks: expected clauses, such as 27.alloc.1, or properties "
            f"({', '.join(sorted(properties))}), got {name}{meant}"
        )
    return ""


def tell_story(plan: Plan, broken: str = "", properties: Iterable[Property] = ()) -> Story | None:
    """Play `plan` and return how it breaks `broken`; None if it does not.

    Without `broken`, the story is about the main property that the plan breaks.
    """
    properties = tuple(properties)
    raised: list[BaseException] = []  # by plugins
    with (
        reporting_failures(raised.append),
        WatchedRun(plan, (), properties, judge=WorldJudge()) as plan_run,
    ):
        outcome = plan_run.outcome(is_at_rest=plan_run.play())
    broken = broken or main_property(outcome)
    if broken not in outcome.broken:
        return None
    trace, played = plan_run.trace, tuple(played_lines(plan, outcome.never_struck))
    for violation in outcome.violations:
        if violation.clause == broken:
            return story_of(violation, trace, played, plan_run.changes, plan_run.right_after)
    found = next(each for each in outcome.problems if property_of(each) == broken)
    return Story(
        broken,
        found.partition(": ")[2] + _line_of(found, raised, plan),
        trace,
        sentence=sentence_of(broken, properties),
        at=_place(broken, properties, trace),
        jobid=_job_in(found, trace),
        played=played,
        changes=plan_run.changes,
        right_after=plan_run.right_after,
    )


def untold_story(plan: Plan, found: str, properties: Iterable[Property], doubt: str) -> Story:
    """Return a story without a trace, for a problem `found` that did not come again."""
    name, _, text = found.partition(": ")
    played = tuple(played_lines(plan))
    return Story(name, text, (), sentence_of(name, properties), played=played, doubt=doubt)


def _line_of(found: str, raised: Iterable[BaseException], plan: Plan) -> str:
    """Return " (file:line)" of the error of a plugin that `found` has; "" if it has none."""
    files = {str(Path(plugin_file(each).load).resolve()) for each in plan.plugins}
    for error in raised:
        frames = traceback.extract_tb(error.__traceback__)
        own = [each for each in frames if str(Path(each.filename).resolve()) in files]
        if own and found.endswith(describe(error)):
            return f" ({Path(own[-1].filename).name}:{own[-1].lineno})"
    return ""


def story_of(
    violation: Violation,
    trace: list[Record],
    played: Iterable[str],
    changes: Sequence[Change],
    right_after: int = 0,
) -> Story:
    """Return the story of a broken clause."""
    return Story(
        violation.clause,
        violation.text,
        trace,
        sentence=violation.sentence,
        party=violation.party,
        at=violation.record.n,
        because=frozenset(violation.because),
        jobid=violation.jobid,
        played=tuple(played),
        changes=changes,
        right_after=right_after,
    )


def sentence_of(name: str, properties: Iterable[Property]) -> str:
    """Return a sentence that says what a property asks for; for a `Property` it is the first line
    of its docstring.
    """
    docs = [each.check.__doc__ for each in properties if each.name == name and each.check.__doc__]
    return docs[0].splitlines()[0] if docs else PROPERTIES.get(name, "")


def place_of_break(plan: Plan, name: str, properties: Iterable[Property]) -> int:
    """Play `plan`; return the number of the record with which the property `name` breaks.

    It is 0 if the property holds, or does not look at the trace.
    """
    if not any(each.name == name and each.looks_at == "trace" for each in properties):
        return 0
    outcome = run_plan(plan, properties=properties)
    return _place(name, properties, outcome.trace) if name in outcome.broken else 0


def _place(name: str, properties: Iterable[Property], trace: Sequence[Record]) -> int:
    """Return the number of the record with which a property over the trace breaks; else 0.

    It is sought from the end, in growing strides, then by halving: the trace may be very long.
    """
    check = next(
        (each for each in properties if (each.name, each.looks_at) == (name, "trace")), None
    )
    if check is None:
        return 0
    # how many records, from the first
    broken, holds, stride = len(trace), max(len(trace) - 1, 0), 1
    while _is_broken(check, trace[:holds]):
        if not holds:
            return 0
        stride *= 2
        broken, holds = holds, max(holds - stride, 0)
    while broken - holds > 1:
        middle = (broken + holds) // 2
        if _is_broken(check, trace[:middle]):
            broken = middle
        else:
            holds = middle
    return trace[broken - 1].n


def _is_broken(check: Property, trace: Sequence[Record]) -> bool:
    """Whether a part of the trace breaks the property; one in which it raises does not."""
    try:
        with property_errors(0):
            return bool(check(trace))
    except PropertyRaised:
        return False


def _job_in(found: str, trace: list[Record]) -> int | None:
    """Return the job that the text names; None if it names no job of the trace."""
    jobids = {(each.data or {})["id"] for each in trace if each.kind == Kind.EVENT}
    named = {jobid for jobid in jobids if f"job {jobid}" in found}
    for spelling in ("f58", "kvs"):
        named |= {jobid for jobid in jobids if format_fluid(jobid, spelling) in found}
    return named.pop() if len(named) == 1 else None


def played_lines(plan: Plan, never_struck: Iterable[Fault] = ()) -> Iterator[str]:
    """Yield what a plan plays: its machine, its jobs, the owner's requests and the faults.

    Those of the faults that have `never_struck` are marked.
    """
    left = list(never_struck)
    limit = f", at most {plan.limit} alloc requests at a time" if plan.limit else ""
    nodes = f"{plan.nnodes} node{'s' * (plan.nnodes > 1)}"
    cores = f"{plan.cores} core{'s' * (plan.cores > 1)}"
    spoken = "" if plan.edition == DEFAULT_EDITION else f", edition {plan.edition}"
    yield f"seed {plan.seed}: {nodes} of {cores}, policy {plan.policy}{limit}{spoken}"
    for plugin in map(plugin_file, plan.plugins):
        conf = f", conf {msgspec.json.encode(plugin.conf).decode()}" if plugin.conf else ""
        yield f"plugin {Path(plugin.load).name}{conf}"
    for place, job in enumerate(plan.jobs):
        yield f"job {place}: {_fields(job)}"
    for action in plan.actions:
        moment = "at" if action.when is None else "when"
        said = (*meant_by(action.what), moment)
        hidden = tuple(name for name in action.__struct_fields__ if name not in said)
        yield f"request {action.what}: {_fields(action, without=hidden)}"
    for fault in plan.faults:
        line = f"fault {name_of_fault(fault)}: {_fields(fault, without=('module',))}"
        if fault in left:
            left.remove(fault)
            line += "; it never struck" + f": {fault.until_then}" * bool(fault.until_then)
        yield line


def _fields(value: JobPlan | OwnerRequest | Fault, without: tuple[str, ...] = ()) -> str:
    """Return the fields of a value, `name value` each, without a flag that is not set."""
    names = [
        name
        for name in value.__struct_fields__
        if name not in without
        and getattr(value, name) not in ((), None)
        and getattr(value, name) is not False
    ]
    return ", ".join(f"{name} {_spelled(getattr(value, name))}" for name in names)


def _spelled(value: Any) -> str:
    match value:
        case When(topic, nth, side, type_, party):
            verb = "sent" if side == "send" else "received"
            return f"{type_} {topic} number {nth} is {verb}" + (f" by {party}" * bool(party))
        case SentMessage(topic, nth, type_, party):
            return f"{type_} {topic} number {nth}" + (f" of {party}" * bool(party))
        case float() | int():
            return f"{value:g}"
        case str():
            return value
        case tuple():
            return listed(value)
    return msgspec.json.encode(value).decode()
