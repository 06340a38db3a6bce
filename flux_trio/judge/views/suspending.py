"""Views of suspended scheduling: after which answers of a scheduler the job manager may send it no
more requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.judge.engine.selector import errnum, job_id, no_key, payload, received, topic_of
from flux_trio.judge.engine.view import Mark, Place, Seen, Trait, view
from flux_trio.judge.views.scheduling import (
    ANNOTATE,
    ASKED,
    CANCEL,
    DENY,
    FINAL,
    LINK,
    AllocRequests,
    asked_of,
    has_grant,
    is_freeing,
    is_pending,
    link_of,
)
from flux_trio.messages import topics
from flux_trio.trace import Record


def is_wrong_answer(record: Record, seen: Seen) -> bool:
    """Whether a response to alloc or free, which is no error response, is one that RFC 27 does not
    allow (readings: Late and stray answers).

    It is wrong if nothing was asked, if it has not the form of an answer, or if it is CANCEL to a
    request that nobody has canceled. If the request was canceled, answers other than SUCCESS may
    still come after the final one.
    """
    if errnum(record):
        return False
    asked, answer = asked_of(seen, job_id(record)), payload(record)
    if topic_of(record) == topics.SCHED_FREE:
        return not is_freeing(asked, seen)
    kind = answer.get("type")
    if not is_pending(asked, seen):
        return kind not in (ANNOTATE, DENY, CANCEL) or not asked.cancel
    annotations, note = answer.get("annotations"), answer.get("note")
    if not isinstance(annotations, dict | None) or not isinstance(note, str | None):
        return True
    if kind == ANNOTATE:
        return annotations is None
    return kind not in FINAL or (kind == CANCEL and not asked.cancel)


_WRONG: Final = Trait(
    "wrong answer",
    tuple(received("response", topics.SCHED_ALLOC, topics.SCHED_FREE)),
    is_wrong_answer,
    lambda: (ASKED, LINK),
)
WRONG_ANSWERED: Final = view(
    "wrong answer",
    received("response", topics.SCHED_ALLOC, topics.SCHED_FREE, mark=Mark(_WRONG, bool)),
    key=no_key,
    fold=lambda _n, _part, record, _seen: record.n,
    state=Place,
)
"""A single state: the record at which the job manager last received a wrong answer of the
scheduler."""


def may_be_suspended(seen: Seen, *, is_judging_too: bool = False) -> bool:
    """Whether the job manager may have suspended scheduling without an error response.

    It does so when an answer is wrong, and when it refuses a grant. The trace does not show that it
    refuses one; there is only no alloc event a second after SUCCESS. With `is_judging_too`, that
    second need not have passed. Only for rare records.
    """
    if (seen.at(WRONG_ANSWERED) or 0) > link_of(seen).answered:
        return True
    asked: Iterable[AllocRequests] = seen.all(ASKED).values()
    return any(
        has_grant(each, seen) and (is_judging_too or seen.is_old(each.granted)) for each in asked
    )


SUSPENDING: Final = (ASKED, LINK, WRONG_ANSWERED)
"""The views that `may_be_suspended` reads."""
