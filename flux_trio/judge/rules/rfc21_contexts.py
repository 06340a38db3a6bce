"""RFC 21, Event Descriptions: the context of each event."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.judge.checks.shapes import (
    BOOLEAN,
    IDSET,
    INTEGER,
    NUMBER,
    OBJECT,
    PRIORITY,
    STRING,
    USERID,
    Shape,
    between,
    key_problem,
    list_of,
    one_of,
)
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, name_of, payload
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.expected_events import EVENTS, EXPECTED, Expected, is_told
from flux_trio.judge.views.expiring import ROUNDING_S, TIME_LIMITS, TimeLimit
from flux_trio.judge.views.jobs import context_of
from flux_trio.judge.views.user_requests import ASKED, asked_for
from flux_trio.messages import topics
from flux_trio.messages.types import USERID_UNKNOWN
from flux_trio.trace import Record

RULES: Final = Rules()

URGENCY: Final = between(0, 31)
SEVERITY: Final = between(0, 7)
RANKS: Final = Shape(
    'an idset (RFC 22) or "all"', lambda value: value == "all" or IDSET.fits(value)
)


def _require(clause: str, event: str, *, required: bool = True, **shapes: Shape) -> None:
    """`clause`: the context of the event has these keys; one not `required` may be left out."""
    views = (EXPECTED,) if event in EVENTS else ()

    @RULES.judge(clause, logged(event), views=views)
    def check(record: Record, seen: Seen) -> Finding:
        context = context_of(record)
        for key, shape in shapes.items():
            wrong = key_problem(context, key, shape, required=required)
            if wrong:
                text = f"{event} event of job {job_id(record)}: context: {wrong}"
                return Broken(text, party=_who_said(record, seen) if views else "")
        return required or not shapes.keys().isdisjoint(context)


def _who_said(record: Record, seen: Seen) -> str:
    """Return the execution service if the event is its answer; "" for the job manager."""
    expected: tuple[Expected, ...] = seen.at(EXPECTED, (job_id(record), name_of(record))) or ()
    is_its = any(is_told(each, record) for each in expected)
    return seen.facts.exec_peer or seen.facts.exec_service if is_its else ""


_require("21.events.4", "submit", urgency=URGENCY)
_require("21.events.5", "submit", userid=USERID)
_require("21.events.6", "submit", flags=INTEGER)
_require("21.events.7", "submit", version=one_of(1))
_require("21.events.14", "set-flags", flags=list_of(STRING))
_require("21.events.15", "dependency-add", description=STRING)
_require("21.events.18", "priority", priority=PRIORITY)
_require("21.events.21", "alloc", required=False, annotations=OBJECT)
_require("21.events.23", "prolog-start", description=STRING)
_require("21.events.30", "finish", status=INTEGER)
_require("21.events.32", "exception", type=STRING)
_require("21.exceptions.1", "exception", severity=SEVERITY)
_require("21.events.33", "exception", severity=SEVERITY)
_require("21.events.34", "exception", note=STRING)
_require("21.events.35", "exception", required=False, userid=USERID)
_require("21.events.29", "release", ranks=RANKS, final=BOOLEAN)


@RULES.judge("21.events.20", logged("urgency"), views=[ASKED])
def the_urgency_is_the_requesters(record: Record, seen: Seen) -> Finding:
    """What somebody waits for is what was asked for; nobody may have asked for the event."""
    context = context_of(record)
    what = f"urgency event of job {job_id(record)}"
    for key, shape in (("urgency", URGENCY), ("userid", USERID)):
        if wrong := key_problem(context, key, shape):
            return Broken(f"{what}: context: {wrong}")
    requests = [each for _, each in asked_for(seen, topics.JOB_URGENCY, job_id(record))]
    logged_ = (context["urgency"], context["userid"])
    asked = [
        (each.urgency, logged_[1] if each.userid == USERID_UNKNOWN else each.userid)
        for each in requests
        if not each.is_done
    ]
    if not asked or logged_ in asked:
        return True
    text = "expected urgency {} of userid {}, as in the request, got {} of {}"
    return Broken(f"{what}: " + text.format(*asked[0], *logged_), (requests[0].n,))


@RULES.judge("21.events.11", logged("resource-update"), views=[TIME_LIMITS])
def a_new_expiration_is_within_the_duration(record: Record, seen: Seen) -> Finding:
    """A job whose jobspec has had durations does not get its resources for longer than those."""
    what = f"resource-update event of job {job_id(record)}: context"
    limit: TimeLimit = seen.at(TIME_LIMITS, job_id(record)) or TimeLimit()
    expiration: Any = context_of(record).get("expiration")
    end = limit.starttime + limit.duration
    is_late = NUMBER.fits(expiration) and expiration > end + ROUNDING_S
    if limit.starttime and limit.duration and is_late:
        text = f"expected no more than starttime + {limit.duration:g} s = {end}, got {expiration}"
        return Broken(f"{what}: expiration: {text}")
    wrong = key_problem(context_of(record), "expiration", INTEGER)
    return Broken(f"{what}: {wrong}") if wrong else True


def _require_empty(clause: str, event: str) -> None:
    """`clause`: the event has no context."""

    @RULES.judge(clause, logged(event))
    def check(record: Record, _seen: Seen) -> Finding:
        found = payload(record).get("context")
        if not found:
            return True
        return Broken(f"{event} event of job {job_id(record)}: expected no context, got {found!r}")


_require_empty("21.events.12", "validate")
_require_empty("21.events.17", "depend")
_require_empty("21.events.27", "free")
_require_empty("21.events.28", "start")


@RULES.judge("21.events.8", logged("jobspec-update"))
def an_update_has_an_entry(record: Record, _seen: Seen) -> Finding:
    context = context_of(record)
    what = f"jobspec-update event of job {job_id(record)}"
    if not context:
        return Broken(f"{what}: expected at least one path and its value, got none")
    bad = [path for path in context if not path or "" in path.split(".")]
    if bad:
        return Broken(f"{what}: expected period-delimited paths, got {bad[0]!r}")
    return True


@RULES.judge("21.events.38", logged("memo"))
def a_memo_is_keys_and_values(record: Record, _seen: Seen) -> Finding:
    found = payload(record).get("context")
    if isinstance(found, dict) and found:
        return True
    return Broken(f"memo event of job {job_id(record)}: expected keys and values, got {found!r}")


@RULES.judge("21.events.36", logged("exception"))
def only_a_task_that_ended_has_a_wait_status(record: Record, _seen: Seen) -> Finding:
    context = context_of(record)
    if "wait_status" not in context:
        return None
    if context.get("type") == "exec" and INTEGER.fits(context["wait_status"]):
        return True
    text = "wait_status: expected an integer, of type exec alone"
    got = f"{context['wait_status']!r:.80} of type {context.get('type')}"
    return Broken(f"exception event of job {job_id(record)}: {text}, got {got}")
