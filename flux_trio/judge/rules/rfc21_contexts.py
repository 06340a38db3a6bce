"""RFC 21, Event Descriptions: the context of each event."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.judge.checks.shapes import (
    BOOLEAN,
    IDSET,
    INTEGER,
    OBJECT,
    PRIORITY,
    STRING,
    USERID,
    Shape,
    between,
    list_of,
    one_of,
    require_key,
)
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.rule import Broken, Rules, Said, Seen, job_id, logged, payload
from flux_trio.judge.views.jobs import context_of
from flux_trio.trace import Record

RULES: Final = Rules()

URGENCY: Final = between(0, 31)
SEVERITY: Final = between(0, 7)
RANKS: Final = Shape(
    'an idset (RFC 22) or "all"', lambda value: value == "all" or IDSET.fits(value)
)


def _context(record: Record, _seen: Seen) -> list[tuple[str, dict[str, Any]]]:
    name, job = payload(record).get("name"), job_id(record)
    return [(f"{name} event of job {job}: context", context_of(record))]


def _require(clause: str, event: str, key: str, shape: Shape, *, required: bool = True) -> None:
    """`clause`: the context of the event has `key`."""
    selectors = logged(event)
    require_key(
        RULES, clause, selectors, key=key, shape=shape, subjects=_context, required=required
    )


_require("21.events.4", "submit", "urgency", URGENCY)
_require("21.events.5", "submit", "userid", USERID)
_require("21.events.6", "submit", "flags", INTEGER)
_require("21.events.7", "submit", "version", one_of(1))
_require("21.events.11", "resource-update", "expiration", INTEGER)
_require("21.events.14", "set-flags", "flags", list_of(STRING))
_require("21.events.15", "dependency-add", "description", STRING)
_require("21.events.18", "priority", "priority", PRIORITY)
_require("21.events.21", "alloc", "annotations", OBJECT, required=False)
_require("21.events.23", "prolog-start", "description", STRING)
_require("21.events.30", "finish", "status", INTEGER)
_require("21.events.32", "exception", "type", STRING)
_require("21.exceptions.1", "exception", "severity", SEVERITY)
_require("21.events.33", "exception", "severity", SEVERITY)
_require("21.events.34", "exception", "note", STRING)
_require("21.events.35", "exception", "userid", USERID, required=False)


def _require_all(clause: str, event: str, **shapes: Shape) -> None:
    """`clause`: the context of the event has all of these keys."""

    @RULES.each(clause, logged(event), of=_context)
    def check(subject: tuple[str, dict[str, Any]]) -> Said:
        what, context = subject
        for key, shape in shapes.items():
            if key not in context or not shape.fits(context[key]):
                got = repr(context[key]) if key in context else "nothing"
                return Broken(f"{what}: {key}: expected {shape.words}, got {got:.80}")
        return True


_require_all("21.events.20", "urgency", urgency=URGENCY, userid=USERID)
_require_all("21.events.29", "release", ranks=RANKS, final=BOOLEAN)


def _require_empty(clause: str, event: str) -> None:
    """`clause`: the event has no context."""

    @RULES.check(clause, logged(event))
    def check(record: Record, _facts: Facts) -> Said:
        found = payload(record).get("context")
        if not found:
            return True
        return Broken(f"{event} event of job {job_id(record)}: expected no context, got {found!r}")


_require_empty("21.events.12", "validate")
_require_empty("21.events.17", "depend")
_require_empty("21.events.19", "flux-restart")
_require_empty("21.events.27", "free")
_require_empty("21.events.28", "start")


@RULES.check("21.events.8", logged("jobspec-update"))
def an_update_has_an_entry(record: Record, _facts: Facts) -> Said:
    context = context_of(record)
    what = f"jobspec-update event of job {job_id(record)}"
    if not context:
        return Broken(f"{what}: expected at least one path and its value, got none")
    bad = [path for path in context if not path or "" in path.split(".")]
    if bad:
        return Broken(f"{what}: expected period-delimited paths, got {bad[0]!r}")
    return True


@RULES.check("21.events.38", logged("memo"))
def a_memo_is_keys_and_values(record: Record, _facts: Facts) -> Said:
    found = payload(record).get("context")
    if isinstance(found, dict) and found:
        return True
    return Broken(f"memo event of job {job_id(record)}: expected keys and values, got {found!r}")


@RULES.check("21.events.36", logged("exception"))
def only_a_task_that_ended_has_a_wait_status(record: Record, _facts: Facts) -> Said:
    context = context_of(record)
    if "wait_status" not in context:
        return None
    if context.get("type") == "exec" and INTEGER.fits(context["wait_status"]):
        return True
    text = "wait_status: expected an integer, of type exec alone"
    got = f"{context['wait_status']!r:.80} of type {context.get('type')}"
    return Broken(f"exception event of job {job_id(record)}: {text}, got {got}")
