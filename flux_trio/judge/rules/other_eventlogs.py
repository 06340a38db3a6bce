"""RFC 18, and the parts of RFC 16 on eventlogs: the events that are written to the KVS.

Reads kvs.commit requests: the value of each key that ends in `eventlog`, a job's or another's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.shapes import OBJECT, STRING, Shape
from flux_trio.judge.engine.packed import Packing
from flux_trio.judge.engine.place import Place
from flux_trio.judge.engine.rule import Broken, Rules, Said, Seen, sent, view
from flux_trio.judge.engine.trait import WITH_EVENTS
from flux_trio.judge.views.eventlogs import Appended, Stored, appended
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

COMMIT: Final = sent("request", topics.KVS_COMMIT, mark=WITH_EVENTS)

TIMESTAMP: Final = Shape(
    "a number above 0", lambda value: type(value) in (int, float) and value > 0
)


def _appended(record: Record, _seen: Seen) -> list[Appended]:
    return appended(record)


def _broken(each: Appended, text: str) -> Broken:
    return Broken(f"{each.op.how} to {each.op.key}: {text}")


@RULES.each("18.format.1", COMMIT, of=_appended)
def each_event_is_terminated(each: Appended) -> Said:
    text = each.op.text
    if not text or text.endswith("\n"):
        return True
    return _broken(each, f"expected a newline at the end of each event, got {text[-40:]!r}")


@RULES.each("18.format.2", COMMIT, of=_appended)
def each_line_is_an_object(each: Appended) -> Said:
    for place, line in enumerate(each.lines):
        if not isinstance(line, dict):
            text = [text for text in each.op.text.split("\n") if text][place]
            return _broken(each, f"expected one JSON object on each line, got {text!r:.80}")
    return True


@RULES.each("18.format.3", COMMIT, of=_appended)
def whole_events_are_appended(each: Appended) -> Said:
    if each.lines:
        return True
    return _broken(each, f"expected one event or more, got {each.op.text!r:.80}")


def _require_key(clause: str, key: str, shape: Shape, *, required: bool = True) -> None:
    """`clause`: each event that is written has the key."""

    @RULES.each(clause, COMMIT, of=_appended)
    def has_the_key(each: Appended) -> Said:
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
    return [(_log_of(each.op), None) for each in appended(record)]


def _log_of(op: Stored) -> int | str:
    """Return the job of an eventlog; of another one, its key."""
    job = op.job
    return job[0] if job is not None and job[1] == "eventlog" else op.key


WRITTEN: Final = view(
    "written",
    COMMIT,
    parts=_written_parts,
    fold=lambda n, _part, record, _seen: n or record.n,
    state=Place,
    packing=Packing(lambda n: n, lambda n: n),
)
"""By job, or key of another eventlog: the record of its first write."""


@RULES.judge("18.format.4", COMMIT, views=(WRITTEN,))
def nothing_is_rewritten(record: Record, seen: Seen) -> Said:
    found = appended(record)
    for op, _ in found:
        first = seen.at(WRITTEN, _log_of(op))
        if op.how == "put" and first:
            return Broken(f"put to {op.key}: expected an append, since it exists", (first,))
        if not op.text:
            return Broken(f"{op.how} to {op.key}: expected it not to be created empty")
    return bool(found)


@RULES.judge("16.schema.3", COMMIT, views=(WRITTEN,))
def ingest_writes_submit_and_nothing_else(record: Record, seen: Seen) -> Said:
    kept = False
    for op, events in appended(record):
        if op.job is None or op.job[1] != "eventlog" or seen.at(WRITTEN, _log_of(op)):
            continue
        names = [line.get("name") if isinstance(line, dict) else None for line in events]
        if "submit" not in names:
            continue  # written before the trace began
        if names != ["submit"]:
            return Broken(f"{op.key}: expected the submit event alone at first, got {names}")
        problem = _submit_problem(events[0])
        if problem is not None:
            return Broken(f"{op.key}: submit event: {problem}")
        kept = True
    return kept


def _submit_problem(event: dict[str, Any]) -> str | None:
    context = event.get("context")
    context = context if isinstance(context, dict) else {}
    for key in ("userid", "urgency"):
        if type(context.get(key)) is not int:
            return f"{key}: expected an integer, got {context.get(key)!r:.80}"
    return None
