"""RFC 18, and the parts of RFC 16 on eventlogs: the events that are written to the KVS.

Reads kvs.commit requests: the value of each key that ends in `eventlog`, a job's or another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from flux_trio.judge.checks.shapes import OBJECT, STRING, Shape, part
from flux_trio.judge.engine.packed import Packing
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import sent
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.commits import STORING, Appended, Storing, appended
from flux_trio.judge.views.traits import WITH_EVENTS
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

COMMIT: Final = sent("request", *topics.COMMITS, mark=WITH_EVENTS)

TIMESTAMP: Final = Shape(
    "a number above 0", lambda value: type(value) in (int, float) and value > 0
)


def _broken(each: Appended, text: str) -> Broken:
    return Broken(f"{each.op.how} to {each.op.key}: {text}")


def _each_log(
    clause: str,
) -> Callable[[Callable[[Appended], Finding]], Callable[[Appended], Finding]]:
    """Register `clause`: what is written to each eventlog passes the decorated function.

    What is regular passes all of these functions.
    """

    def register(check: Callable[[Appended], Finding]) -> Callable[[Appended], Finding]:
        @RULES.by(STORING, clause, COMMIT)
        def judge(storing: Storing | None, record: Record, _seen: Seen) -> Finding:
            if storing is not None and storing.is_regular:
                return True
            answers = [check(each) for each in appended(record)]
            broken = next((each for each in answers if isinstance(each, Broken)), None)
            return broken or any(answers)

        return check

    return register


@_each_log("18.format.1")
def each_event_is_terminated(each: Appended) -> Finding:
    text = each.op.text
    if not text or text.endswith("\n"):
        return True
    return _broken(each, f"expected a newline at the end of each event, got {text[-40:]!r}")


@_each_log("18.format.2")
def each_line_is_an_object(each: Appended) -> Finding:
    for place, line in enumerate(each.lines):
        if not isinstance(line, dict):
            text = [text for text in each.op.text.split("\n") if text][place]
            return _broken(each, f"expected one JSON object on each line, got {text!r:.80}")
    return True


@_each_log("18.format.3")
def whole_events_are_appended(each: Appended) -> Finding:
    if each.lines:
        return True
    return _broken(each, f"expected one event or more, got {each.op.text!r:.80}")


def _require_key(clause: str, key: str, shape: Shape, *, required: bool = True) -> None:
    """`clause`: each event that is written has the key."""

    @_each_log(clause)
    def has_the_key(each: Appended) -> Finding:
        for line in each.lines:
            if not isinstance(line, dict) or (key not in line and not required):
                continue
            if key not in line or not shape.fits(line[key]):
                got = repr(line[key]) if key in line else "nothing"
                return _broken(each, f"{key}: expected {shape.words}, got {got:.80}")
        return True


_require_key("18.format.6", "timestamp", TIMESTAMP)
_require_key("18.format.7", "name", STRING)
_require_key("18.format.8", "context", OBJECT, required=False)


# --- the life of an eventlog


def _written_parts(record: Record, _seen: Seen) -> Iterable[tuple[int | str, None]]:
    return [(each.log, None) for each in appended(record)]


WRITTEN: Final = view(
    "written",
    COMMIT,
    parts=_written_parts,
    fold=lambda n, _part, record, _seen: n or record.n,
    state=Place,
    packing=Packing(lambda n: n, lambda n: n),
)
"""The record of the first write of each eventlog, by job id, or by the key of an eventlog that is
no job's."""


@RULES.by(STORING, "18.format.4", COMMIT, views=(WRITTEN,))
def nothing_is_rewritten(storing: Storing | None, record: Record, seen: Seen) -> Finding:
    if storing is None:
        return None
    if storing.is_regular and not storing.has_put:
        return True
    for each in appended(record):
        op, first = each.op, seen.at(WRITTEN, each.log)
        if op.how == "put" and first:
            return Broken(f"put to {op.key}: expected an append, since it exists", (first,))
        if not op.text:
            return Broken(f"{op.how} to {op.key}: expected it not to be created empty")
    return True


@RULES.by(STORING, "16.schema.3", COMMIT, views=(WRITTEN,))
def ingest_writes_submit_and_nothing_else(
    storing: Storing | None, record: Record, seen: Seen
) -> Finding:
    if storing is None or not storing.has_submit:
        return None  # of other events, the first were written before the trace began
    kept = False
    for each in appended(record):
        if type(each.log) is not int or "submit" not in each.names or seen.at(WRITTEN, each.log):
            continue
        lines = each.lines
        names = [line.get("name") if isinstance(line, dict) else None for line in lines]
        if names != ["submit"]:
            return Broken(f"{each.op.key}: expected the submit event alone at first, got {names}")
        problem = _submit_problem(lines[0])
        if problem is not None:
            return Broken(f"{each.op.key}: submit event: {problem}")
        kept = True
    return kept


def _submit_problem(event: dict[str, Any]) -> str | None:
    context = part(event, "context", dict)
    for key in ("userid", "urgency"):
        if type(context.get(key)) is not int:
            return f"{key}: expected an integer, got {context.get(key)!r:.80}"
    return None
