"""RFC 32, Start Request: the events by which the job manager logs the service's responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, name_of, sent, while_live
from flux_trio.judge.engine.view import Seen, Selector
from flux_trio.judge.views.eventlogs import LOG, broken_event, log_of
from flux_trio.judge.views.execution import LINK, START, STARTS, Start, link_of
from flux_trio.judge.views.expected_events import EXPECTED, Expected, is_told
from flux_trio.judge.views.jobs import context_of
from flux_trio.judge.views.traits import says
from flux_trio.trace import Record

RULES: Final = Rules()


def _expected(seen: Seen, record: Record, name: str) -> tuple[Expected, ...]:
    """Return what this job manager has heard and not logged; its predecessor's is not its own."""
    found: tuple[Expected, ...] | None = seen.states[EXPECTED].get((job_id(record), name))
    if found is None:
        return ()
    gone = link_of(seen).gone
    return tuple([each for each in found if each.n > gone])


def _debts_of_events(
    name: str, when: Callable[[Expected], bool]
) -> Callable[[Seen], Iterable[Broken]]:
    """Return a function that yields a violation for each response that was never logged."""

    def debts(seen: Seen) -> Iterable[Broken]:
        all_left: Mapping[Any, tuple[Expected, ...]] = seen.all(EXPECTED)
        gone = link_of(seen).gone
        for (job, kind), left in all_left.items():
            for expected in left if kind == name else ():
                is_due = expected.n > gone and not expected.is_doubtful
                if is_due and when(expected):
                    text = f"job {job}: expected a {name} event after the {name} response"
                    yield Broken(f"{text}, none was logged", (expected.n,), job=job)

    return debts


def _require_event(
    clause: str,
    name: str,
    when: Callable[[Expected], bool] = lambda _expected: True,
    *,
    unasked: Callable[[Record, Seen], bool] = lambda _record, _seen: True,
    said: Iterable[Selector] = (),
    once: Callable[[Record, Seen], Finding] = lambda _record, _seen: None,
) -> None:
    """`clause`: each such answer is logged with what it said.

    `unasked` says of an event that no answer asks for whether it may be there all the same; `once`
    judges the answers themselves, which `said` selects.
    """

    @RULES.judge(
        clause,
        logged(name),
        said,
        while_live(EXPECTED, logged("clean")),
        views=(EXPECTED, LINK, STARTS, LOG),
        debts=_debts_of_events(name, when),
    )
    def judge(record: Record, seen: Seen) -> Finding:
        if record.message is not None:
            return once(record, seen)
        left = [each for each in _expected(seen, record, name) if when(each)]
        if name_of(record) == "clean":
            return _missing_at_the_end(record, seen, name, left)
        for each in left:
            if is_told(each, record):
                return True
        what = f"{name} event of job {job_id(record)}"
        left = [each for each in left if not each.is_doubtful]
        if left and name != "exception":
            text = f"expected {dict(left[0].context)}, got {context_of(record)}"
            return Broken(f"{what}: {text}", (left[0].n,))
        if unasked(record, seen):
            return None
        return Broken(f"{what}: expected none, since the execution service said no such thing")


def _missing_at_the_end(record: Record, seen: Seen, name: str, left: list[Expected]) -> Finding:
    """Return the violation of a clean event before which a response was never logged.

    A second start or finish is wrong itself, and responses before the service was lost are void.
    """
    if not left:
        return None
    log = log_of(record, seen)
    is_logged = log is not None and {"start": log.started, "finish": log.finished}.get(name)
    lost = link_of(seen).lost
    due = [each.n for each in left if each.n > lost and not each.is_doubtful]
    if is_logged or not due:
        return None
    text = f"no {name} event came before it, after the {name} response"
    return broken_event(record, text, due[0], is_missing=True)


def _is_known(record: Record, seen: Seen) -> bool:
    """Whether the trace shows what the service says of the job at all."""
    return seen.at(LOG, job_id(record)) is not None and seen.at(STARTS, job_id(record)) is not None


def _no_event(record: Record, seen: Seen) -> bool:
    return not _is_known(record, seen)


def _release_of_its_own(record: Record, seen: Seen) -> bool:
    """The service was lost after finish: the job manager releases the rest itself."""
    log = seen.at(LOG, job_id(record))
    is_left = seen.at(STARTS, job_id(record)) is None or log is None or not log.finished
    if is_left:
        return not _is_known(record, seen)
    link = link_of(seen)
    return bool(seen.at(STARTS, job_id(record)).sent < link.ended)


def _said_once(record: Record, seen: Seen) -> Finding:
    """All shells of a job start once, and before the job is complete."""
    start: Start | None = seen.at(STARTS, job_id(record))
    before = [name for name in ("start", "finish") if start is not None and start.place(name)]
    if start is None or not before or link_of(seen).disconnected > start.sent:
        return None  # who has left says nothing in a stream
    text = f"start response of job {job_id(record)}: expected none after {before[0]}"
    return Broken(text, (start.place(before[0]),), party=record.party)


_require_event(
    "32.start.17",
    "start",
    unasked=_no_event,
    said=sent("response", START, mark=says("start")),
    once=_said_once,
)
_require_event("32.start.23", "release", unasked=_release_of_its_own)
_require_event(
    "32.criteria.4",
    "release",
    lambda expected: dict(expected.context).get("final") is False,
    unasked=lambda _record, _seen: True,
)
_require_event("32.start.24", "exception")
_require_event("32.start.28", "exception", lambda expected: "note" in dict(expected.context))
_require_event("32.start.30", "finish", unasked=_no_event)
_require_event("32.start.34", "exception", lambda expected: expected.is_early_or_late)
