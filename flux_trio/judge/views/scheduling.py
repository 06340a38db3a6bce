"""Views of RFC 27 from the job manager's side: the link to the scheduler, what it asked of it.

A request that was open when the scheduler was lost is void: compare its place with `Link.lost`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.shapes import arrays
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.selector import (
    ERROR,
    EVENT,
    MODULE,
    RECV,
    SEND,
    errnum,
    job_id,
    logged,
    message,
    no_key,
    noted,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Live, Place, Seen, Trait, view
from flux_trio.judge.views.jobs import LIFE, PRIORITY, SCHED, Life
from flux_trio.judge.views.traits import UNREADABLE, says
from flux_trio.messages import Errno, Request, Response, service_of, topics
from flux_trio.trace import Kind, Record

SUCCESS, ANNOTATE, DENY, CANCEL = range(4)
FINAL = (SUCCESS, DENY, CANCEL)

TO_SCHEDULER = (
    topics.SCHED_ALLOC,
    topics.SCHED_CANCEL,
    topics.SCHED_PRIORITIZE,
    topics.SCHED_EXPIRATION,
    topics.SCHED_FREE,
)


SUCCESSES: Final = sent("response", topics.SCHED_ALLOC, mark=says(SUCCESS))
ANNOTATES: Final = sent("response", topics.SCHED_ALLOC, mark=says(ANNOTATE))
DENIES: Final = sent("response", topics.SCHED_ALLOC, mark=says(DENY))
CANCELS: Final = sent("response", topics.SCHED_ALLOC, mark=says(CANCEL))


class Link(Live, frozen=True, gc=False):
    """The relation between job manager and scheduler: for each kind of event the record at which it
    happened last; 0 if it never did.
    """

    hello_sent: Place = 0
    """The scheduler sent sched-hello. What it received before is about an earlier hello."""
    hello: Place = 0
    """The job manager received sched-hello."""
    hello_tag: int = 0
    """The matchtag of the last hello, which distinguishes its answers from those to an earlier
    hello."""
    hello_routes: tuple[str, ...] = ()
    """The routes of the last hello. If there is a second hop, it distinguishes the scheduler from
    earlier ones with the same name."""
    hello_ended: Place = 0
    """The job manager ended the answers to hello with ENODATA."""
    hello_done: Place = 0
    """The scheduler received that ENODATA."""
    refused: Place = 0
    """The scheduler received another error in answer to hello."""
    ready_sent: Place = 0
    ready: Place = 0
    """The job manager received sched-ready."""
    answered: Place = 0
    """The job manager answered sched-ready without an error."""
    ready_refused: Place = 0
    """The scheduler received an error in answer to sched-ready. ENOSYS does not count: nobody was
    there to answer, as for hello."""
    lost: Place = 0
    """The job manager received the scheduler's disconnect, an error in answer to alloc or free, an
    answer that it cannot read, or a hello; or the job manager ended itself."""
    fatal: Place = 0
    """The job manager received an error in answer to alloc or free; 0 again after the next answer
    to sched-ready."""
    fatal_topic: str = ""
    fatal_errnum: int = 0
    gone: Place = 0
    """The disconnect of the scheduler was sent."""
    manager_gone: Place = 0
    """The job manager ended. What it had not sent yet, it does not send any more."""

    @property
    def is_up(self) -> bool:
        """Whether the job manager may send requests to the scheduler."""
        return self.answered > self.lost

    def is_answered_by(self, record: Record) -> bool:
        """Whether a response to hello is an answer to the hello that was taken up last."""
        found = record.message
        if not isinstance(found, Response):
            return True
        is_of_another = len(self.hello_routes) > 1 and found.routes != self.hello_routes
        return found.matchtag == self.hello_tag and not is_of_another


NO_LINK = Link()


def _fold_link(link: Link | None, _part: None, record: Record, seen: Seen) -> Link:
    link = link or NO_LINK
    if record.kind == MODULE:
        is_gone = seen.facts.is_manager_gone(record)
        return link.but(lost=record.n, manager_gone=record.n) if is_gone else link
    found = message(record)
    taken_up = record.kind == RECV
    if isinstance(found, Request):
        is_refused = found.is_of_guest or not found.wants_response
        if found.topic == topics.SCHED_HELLO and is_refused:
            return link
        return _after_request(link, found, record.n, taken_up, seen)
    error = errnum(record)
    match topic_of(record), taken_up:
        case topics.SCHED_HELLO, False if error == Errno.ENODATA:
            return link.but(hello_ended=record.n) if link.is_answered_by(record) else link
        case topics.SCHED_HELLO, True if error == Errno.ENODATA:
            return link.but(hello_done=record.n)
        case topics.SCHED_HELLO, True if error and error != Errno.ENOSYS:
            is_others = seen.facts.scheduler not in ("", record.party)
            return link if is_others else link.but(refused=record.n)  # ENOSYS: nobody heard it
        case topics.SCHED_READY, False if not error:
            return link.but(answered=record.n, fatal=0, fatal_topic="", fatal_errnum=0)
        case topics.SCHED_READY, True if error and error != Errno.ENOSYS:
            # After another hello, the refused ready was meant for a job manager that is gone.
            return link if link.hello_sent > link.ready_sent else link.but(ready_refused=record.n)
        case (topics.SCHED_ALLOC | topics.SCHED_FREE) as topic, True if error:
            n = record.n
            return link.but(lost=n, fatal=n, fatal_topic=topic, fatal_errnum=error)
        case topics.SCHED_ALLOC, True:
            return link.but(lost=record.n)  # nobody can read it
    return link


LINK: Final = view(
    "link",
    sent("request", topics.SCHED_HELLO, topics.SCHED_READY, topics.JOB_MANAGER_DISCONNECT),
    sent("request", f"{topics.SCHED}.{topics.DISCONNECT}"),
    noted(Kind.MODULE),
    received("request", topics.SCHED_HELLO, topics.SCHED_READY, topics.JOB_MANAGER_DISCONNECT),
    sent("response", topics.SCHED_HELLO, topics.SCHED_READY),
    received("response", topics.SCHED_HELLO, topics.SCHED_READY),
    received("response", topics.SCHED_ALLOC, mark=UNREADABLE),
    received("response", topics.SCHED_FREE, mark=ERROR),
    key=no_key,
    fold=_fold_link,
)
"""A single state: the `Link` to the scheduler that said hello last."""


def _after_request(link: Link, request: Request, n: int, taken_up: bool, seen: Seen) -> Link:
    match request.topic, taken_up:
        case topics.SCHED_HELLO, False:
            return link.but(hello_sent=n)
        case topics.SCHED_HELLO, True:
            tag, routes = request.matchtag, request.routes
            return link.but(hello=n, lost=n, hello_tag=tag, hello_routes=routes)
        case topics.SCHED_READY, False:
            return link.but(ready_sent=n)
        case topics.SCHED_READY, True:
            return link.but(ready=n)
    if service_of(request.topic) == topics.SCHED:
        return link.but(lost=n) if request.sender == seen.facts.manager else link
    if request.sender != seen.facts.scheduler:
        return link  # somebody else's disconnect
    return link.but(lost=n) if taken_up else link.but(gone=n)


def link_of(seen: Seen) -> Link:
    link: Link | None = seen.states[LINK].get(())
    return NO_LINK if link is None else link


def scheduler_lost(record: Record, facts: Facts) -> bool:
    """Whether the job manager learns that the scheduler has gone, has failed, or is new."""
    found = record.message
    if isinstance(found, Request):
        if found.topic == topics.JOB_MANAGER_DISCONNECT:
            return found.sender == facts.scheduler
        return found.topic == topics.SCHED_HELLO and not found.is_of_guest
    return bool(errnum(record))  # an error response to alloc or free is fatal


def refusal_of(link: Link, topic: str) -> Place:
    """Return the record at which the scheduler received that its sched-hello or sched-ready was
    refused; 0 if it was not, or the scheduler has left.
    """
    n = link.refused if topic == topics.SCHED_HELLO else link.ready_refused
    return n if n > max(link.hello_sent, link.gone) else 0


class AllocRequests(Live, frozen=True, gc=False):
    """What the job manager has asked the scheduler about one job. Places of records are 0 for what
    has not happened.
    """

    alloc: Place = 0
    """The record of the open sched.alloc; 0 once its final answer was received."""
    first_alloc: Place = 0
    """The record of the job's very first sched.alloc."""
    priority: int = -1
    """The priority in the last message about the job to the scheduler."""
    canceled: Place = 0
    """The record at which CANCEL was received, which ended the last sched.alloc."""
    annotated: Place = 0
    """The record of an ANNOTATE since the last sched.alloc."""
    cancel: Place = 0
    """The record of a sched.cancel since the last sched.alloc."""
    granted: Place = 0
    """The record at which SUCCESS was received, as long as neither its alloc event nor a free has
    followed."""
    crossed: bool = False
    """Whether the SUCCESS in `granted` came after a sched.cancel."""
    has_annotations: bool = False
    """Whether the SUCCESS in `granted` had the key `annotations`."""
    denied: Place = 0
    """The record at which DENY was received, as long as the job's exception has not followed."""
    note: str | None = None
    """The note in the DENY that was received last; None if it had none."""
    free: Place = 0
    """The record of a sched.free that was not answered; the current edition has no answer."""
    freed: Place = 0
    """The record at which the answer to sched.free was received, as long as the free event has not
    followed."""


NOTHING_ASKED = AllocRequests()


def _asked_about(record: Record, _seen: Seen) -> Iterable[tuple[int, Any]]:
    pairs = arrays(payload(record).get("jobs"), 2)
    return [(jobid, priority) for jobid, priority in pairs if type(jobid) is int]


def _fold_asked(
    asked: AllocRequests | None, priority: Any, record: Record, seen: Seen
) -> AllocRequests | None:
    asked = asked or NOTHING_ASKED
    if record.kind == EVENT:
        return _after_event(asked, record, seen)
    if record.kind == SEND:
        if seen.facts.manager not in ("", record.party):
            return asked if asked != NOTHING_ASKED else None  # of one who only says so
        return _after_asking(asked, priority, record, seen)
    if errnum(record):
        return asked
    if topic_of(record) == topics.SCHED_FREE:
        over = seen.at(LIFE, job_id(record)) is None
        freed = record.n if asked.free else asked.freed
        return None if over else asked.but(free=0, freed=freed)
    return _after_answer(asked, record, seen)


ASKED: Final = view(
    "asked",
    sent("request", topics.SCHED_ALLOC, topics.SCHED_CANCEL, topics.SCHED_FREE),
    received("response", topics.SCHED_ALLOC, topics.SCHED_FREE),
    logged("alloc", "exception", "free", "clean"),
    key=job_id,
    parts=_asked_about,
    many=sent("request", topics.SCHED_PRIORITIZE),
    reads=(LINK, LIFE),
    fold=_fold_asked,
)
"""What was asked about each job (`AllocRequests`), by job id. A job is left out when it is inactive
and nothing is open, or when nothing was asked."""


def _after_asking(asked: AllocRequests, priority: Any, record: Record, seen: Seen) -> AllocRequests:
    n = record.n
    match topic_of(record):
        case topics.SCHED_ALLOC:
            first = asked.first_alloc or n
            priority = payload(record).get("priority")
            return AllocRequests(alloc=n, first_alloc=first, priority=priority)
        case topics.SCHED_CANCEL if asked.denied and not _is_denial_due(seen, record, n):
            return asked.but(cancel=n, denied=0, note=None)  # decided on before DENY was taken up
        case topics.SCHED_CANCEL:
            return asked.but(cancel=n)
        case topics.SCHED_PRIORITIZE:
            return asked.but(priority=priority)
    is_answered = "R" not in payload(record)  # only in the classic edition
    return asked.but(free=n if is_answered else 0, granted=0, crossed=False)


def _is_denial_due(seen: Seen, record: Record, cancel: Place) -> bool:
    """Whether DENY ends the job: not one that left SCHED and whose request is canceled.

    See readings: Late and stray answers.
    """
    life = seen.at(LIFE, job_id(record))
    return life is not None and (life.state == SCHED or (life.state == PRIORITY and not cancel))


def _after_answer(asked: AllocRequests, record: Record, seen: Seen) -> AllocRequests | None:
    if not is_pending(asked, seen):
        return asked if asked != NOTHING_ASKED else None
    answer, life = payload(record), seen.at(LIFE, job_id(record))
    match answer.get("type"):
        case 0:
            return asked.but(
                alloc=0,
                granted=record.n,
                crossed=bool(asked.cancel),
                has_annotations="annotations" in answer,
            )
        case 1:
            asked = asked.but(annotated=record.n)
        case 2:
            note = answer.get("note")
            note = note if isinstance(note, str) else None
            is_due = _is_denial_due(seen, record, asked.cancel)
            asked = asked.but(alloc=0, denied=record.n if is_due else 0, note=note)
        case 3:
            asked = asked.but(alloc=0, canceled=record.n)
    return asked if asked.alloc or life is not None else None


def _after_event(asked: AllocRequests, record: Record, seen: Seen) -> AllocRequests | None:
    match payload(record).get("name"):
        case "alloc":
            return asked.but(granted=0, crossed=False)
        case "exception" if asked.denied:
            return asked.but(denied=0, note=None)
        case "free":
            return asked.but(free=0, freed=0)
        case "clean" if not is_pending(asked, seen) and not asked.granted and not asked.free:
            return None
    return asked if asked != NOTHING_ASKED else None


def asked_of(seen: Seen, jobid: Any) -> AllocRequests:
    """Return the state of ASKED for a job."""
    asked: AllocRequests | None = seen.states[ASKED].get(jobid)
    return NOTHING_ASKED if asked is None else asked


def is_pending(asked: AllocRequests, seen: Seen) -> bool:
    """Whether a sched.alloc is open: it has no final answer, and the scheduler was not lost
    since.
    """
    return asked.alloc > link_of(seen).lost


def has_grant(asked: AllocRequests, seen: Seen) -> bool:
    """Whether SUCCESS was received and the scheduler was not lost since: an alloc event must
    follow.

    A job manager that loses the scheduler before it has logged alloc may ask again instead.
    """
    return asked.granted > link_of(seen).lost


def has_denial(asked: AllocRequests, seen: Seen) -> bool:
    """Whether DENY was received and the scheduler was not lost since: an exception must follow.

    A job manager that ends, or loses the scheduler, in the turn of the DENY asks again.
    """
    return asked.denied > link_of(seen).lost


def gives_late_grant_back(asked: AllocRequests, life: Life) -> bool:
    """Whether a sched.free of this job may give back a grant that the job left SCHED without.

    The grant came after a cancel, and the job may be INACTIVE by now; or it came as the job went
    back to PRIORITY, and the job may be in SCHED again. There is no alloc event of it.
    """
    return asked.granted > 0 and (life.state != SCHED or life.since > asked.granted)


def is_freeing(asked: AllocRequests, seen: Seen) -> bool:
    """Whether a sched.free of the job is open."""
    return asked.free > link_of(seen).lost


def is_freed(asked: AllocRequests, seen: Seen) -> bool:
    """Whether sched.free was answered and the free event has to follow.

    A job manager that ends in the turn of the answer has to ask again: an epilog may come first.
    """
    return asked.freed > link_of(seen).lost


def is_eligible(life: Life | None) -> bool:
    """Whether a job waits for resources: it is in SCHED and not held."""
    return life is not None and life.state == SCHED and life.priority > 0


# --- requests when they are sent


class Requesting(Live, frozen=True, gc=False):
    """The properties of a request about a job's resources at its send, of the job, and of the link
    to the scheduler.
    """

    topic: str
    is_managers: bool
    """Whether the job manager sends it."""
    is_to_scheduler: bool
    is_limited: bool
    """Whether the scheduler has set a limit on open requests."""
    is_up: bool
    """Whether the job manager may send requests, and the scheduler has not left."""
    is_ready: bool
    """Whether sched-ready was answered at least once."""
    is_greeted: bool
    """Whether there was a sched-hello since the last answer to sched-ready."""
    has_failed: bool
    """Whether the job manager received an error of the scheduler, and no sched-ready since."""
    has_left: bool
    """Whether the job manager received the scheduler's disconnect, and no sched-ready since."""
    state: str
    """The state of the job; "" if it is not active."""
    is_held: bool
    """Whether the job holds resources by its eventlog."""
    is_pending: bool
    """Whether a sched.alloc of the job is open."""
    is_freeing: bool
    """Whether a sched.free of the job is open."""
    is_again: bool
    """Whether the same request was already open before sched-ready was answered last."""
    is_crossed: bool
    """Whether SUCCESS came after a sched.cancel, and neither its alloc event nor a free has
    followed."""


def _requesting(record: Record, seen: Seen) -> Requesting:
    facts, link, topic = seen.facts, link_of(seen), topic_of(record)
    jobid = job_id(record)
    asked = asked_of(seen, jobid)
    life: Life | None = seen.states[LIFE].get(jobid)
    before = asked.free if topic == topics.SCHED_FREE else asked.alloc
    return Requesting(
        topic,
        record.party == facts.manager,
        record.peer == facts.scheduler,
        facts.limit is not None,
        link.is_up and link.gone <= link.hello,
        link.answered > 0,
        link.hello > link.answered,
        link.fatal != 0,
        has_left(link),
        "" if life is None else str(life.state),
        life is not None and life.held != 0,
        asked.alloc > link.lost,
        asked.free > link.lost,
        0 < before < link.answered,
        asked.crossed,
    )


def has_left(link: Link) -> bool:
    """Whether the job manager received the scheduler's disconnect, and answered no sched-ready
    since.
    """
    return link.lost > link.answered and link.lost not in (link.hello, link.fatal)


REQUESTING: Final = Trait(
    "requesting",
    tuple(sent("request", topics.SCHED_ALLOC, topics.SCHED_FREE)),
    _requesting,
    lambda: (ASKED, LINK, LIFE),
)
