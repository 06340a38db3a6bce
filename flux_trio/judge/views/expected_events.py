"""View of RFC 32: the events that the job manager has to log for responses to start requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.engine.selector import (
    EVENT,
    OWN,
    errnum,
    job_id,
    logged,
    name_of,
    payload,
    received,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.eventlogs import LOG, Log
from flux_trio.judge.views.execution import (
    LINK,
    START,
    STARTS,
    Start,
    data_of,
    is_senseless,
    link_of,
    start_of,
)
from flux_trio.judge.views.jobs import context_of
from flux_trio.trace import Record


class Expected(Live, frozen=True, gc=False):
    """An event that is due: the job manager has received this response and not logged it."""

    n: Place
    context: tuple[tuple[str, Any], ...]
    """The expected context of the event, as pairs; values that cannot be hashed are left out."""
    is_early_or_late: bool = False
    """Whether the response is an exception before start, or after finish."""
    is_doubtful: bool = False
    """Whether the response makes no sense, or came after such a one: the job manager may ignore
    it."""


EVENTS: Final = ("start", "release", "finish", "exception")
"""The types of start responses; each is logged as the event of that name."""


CONTEXTS: Final[dict[str, tuple[str, ...]]] = {
    "release": ("ranks", "final"),
    "finish": ("status",),
    "exception": ("severity", "type", "note"),
}
"""By type of a start response: the keys of its data that its event must have in its context. The
event may have other keys, which are not checked."""


_VALUES: Final = (str, int, float)


def _expected_parts(record: Record, seen: Seen) -> Iterable[tuple[Any, Expected | None]]:
    jobid = job_id(record)
    if record.kind == EVENT:
        name = name_of(record)
        return [((jobid, kind), None) for kind in (EVENTS if name == "clean" else (name,))]
    kind, data = str(payload(record).get("type")), data_of(record)
    start: Start | None = start_of(seen, record)
    log: Log | None = seen.states[LOG].get(jobid)
    if start is None or log is None or log.ended:
        return []
    if errnum(record) or kind not in EVENTS:
        return []
    received = dict(start.received)
    known = CONTEXTS.get(kind, ())
    context = tuple([(k, v) for k, v in data.items() if k in known and isinstance(v, _VALUES)])
    is_early_or_late = "start" not in received or "finish" in received
    is_late = start.sent < link_of(seen).doubtful
    is_again = _is_again(kind, log)
    is_doubtful = is_late or is_again or is_senseless(record, seen)
    return [((jobid, kind), Expected(record.n, context, is_early_or_late, is_doubtful))]


def _is_again(kind: str, log: Log) -> bool:
    """Whether the event of a response that comes once is there already."""
    return bool((kind == "start" and log.started) or (kind == "finish" and log.finished))


def _fold_expected(
    left: tuple[Expected, ...] | None, new: Expected | None, record: Record, seen: Seen
) -> tuple[Expected, ...] | None:
    if left is None:
        return None if new is None else (new,)
    gone = link_of(seen).gone
    left = tuple([each for each in left if each.n > gone])
    if new is not None:  # what was said in answer to an earlier request was said in vain
        asked = seen.states[STARTS][job_id(record)].sent
        return (*[each for each in left if each.n > asked], new)
    if name_of(record) == "clean":
        return None
    # other parties raise exceptions too, but only the service sends start, release and finish
    others = payload(record).get("name") == "exception"
    oldest = left[0] if left and not others else None
    done = oldest
    for each in left:
        if is_told(each, record):
            done = each
            break
    return tuple([each for each in left if each is not done]) or None


_NOTHING: Final = object()  # equals no value


def is_told(expected: Expected, record: Record) -> bool:
    """Whether an event has the data of the expected response."""
    context = context_of(record)
    left = [key for key, value in expected.context if context.get(key, _NOTHING) != value]
    return not left


EXPECTED: Final = view(
    "expected events",
    received("response", START),
    while_live(OWN, logged(*EVENTS, "clean")),
    parts=_expected_parts,
    fold=_fold_expected,
    reads=(LINK, STARTS, LOG),
)
"""The events that are due (`Expected`), by job id and type of the response, oldest first."""
