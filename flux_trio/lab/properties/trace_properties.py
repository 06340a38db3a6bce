"""Properties over the trace: what a service has told is so, and stays so.

An event is told once, when it is durable; a request has one last answer, commits are answered in
their order, a job id is not given again, and resources that the scheduler has lost are not granted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from flux_trio.editions import EDITIONS, Edition, journal, submission
from flux_trio.editions.codec import Codec
from flux_trio.editions.rfc27 import AllocType
from flux_trio.editions.rfc28 import Grown, Offline, Online, Shrunk
from flux_trio.formats import EVENTLOG, FormatError, format_fluid, job_key, parse_eventlog, parse_r
from flux_trio.judge.rules import edition_of
from flux_trio.lab.properties.property import over_trace
from flux_trio.messages import FluxError, Request, Response, service_of, topics
from flux_trio.trace import Kind, Record
from flux_trio.trace.kvs import operations_of

T = TypeVar("T")

SERVICES: Final = (
    topics.JOB_MANAGER,
    topics.SCHED,
    topics.JOB_EXEC,
    topics.RESOURCE,
    topics.KVS,
    topics.JOB_INGEST,
    topics.JOB_LIST,
)
Line = tuple[str, str, float]
"""One event of an eventlog: the key of the eventlog, the name of the event and its timestamp."""


def ends(record: Record, module: str) -> bool:
    """Return whether a record says that a module started or ended, or that the instance starts."""
    data = record.data or {}
    is_of_module = record.kind == Kind.MODULE and data["module"] == module
    return record.kind == Kind.CONFIG or is_of_module


def read_if_valid(codec: Codec[T], message: Request | Response) -> T | None:
    """Return the payload of a message; None if it is not valid, as that of a party that lies."""
    try:
        return codec.read(message)
    except (FluxError, FormatError):
        return None


def messages_of(trace: Sequence[Record], party: str) -> Iterator[tuple[Record, str]]:
    """Yield the requests and responses of a module with their topics.

    Records of its start or end, and of the start of the instance, come with the topic "".
    """
    for record in trace:
        if record.party == party and isinstance(record.message, Request | Response):
            yield record, record.message.topic
        elif record.message is None and ends(record, party):
            yield record, ""


@over_trace("durable", topics.JOB_MANAGER)
def the_journal_tells_of_durable_events(trace: Sequence[Record]) -> str:
    """No event is told in the journal before its commit is answered (RFC 16, 21.criteria.7)."""
    open_: dict[int, set[Line]] = {}  # by matchtag of a commit that is not answered
    durable: set[Line] = set()
    for record, topic in messages_of(trace, topics.JOB_MANAGER):
        message = record.message
        if not topic:
            open_.clear()
        elif topic in topics.COMMITS and isinstance(message, Request):
            open_[message.matchtag] = set(_lines_in(message))
        elif topic in topics.COMMITS and isinstance(message, Response):
            durable |= open_.pop(message.matchtag, set())
        elif topic == topics.JOB_JOURNAL and isinstance(message, Response) and not message.errnum:
            for jobid, _, event in journal.BATCH.read(message).events:
                line = (job_key(jobid, EVENTLOG), event.name, event.timestamp)
                if line not in durable and any(line in lines for lines in open_.values()):
                    name = format_fluid(jobid, "f58")
                    return f"record {record.n} tells of {event.name} of {name}, which is not stored"
    return ""


def _lines_in(commit: Request) -> Iterator[Line]:
    for how, key, text in _ops_in(commit):
        if how == "append" and key.endswith(f".{EVENTLOG}"):
            for event in parse_eventlog(text):
                yield key, event.name, event.timestamp


def _ops_in(commit: Request) -> list[tuple[str, str, str]]:
    """Return how, key and text of each operation of a commit, in the words of any edition."""
    assert isinstance(commit.payload, dict)
    return operations_of(commit.payload)


@over_trace("journaled", topics.JOB_MANAGER)
def the_journal_tells_each_event_once(trace: Sequence[Record]) -> str:
    """The events of a job come to each follower in their order, none twice and none left out."""
    places: dict[tuple[str, int, int], int] = {}  # by follower, matchtag and job: of its last event
    chosen: set[tuple[str, int]] = set()  # followers that want some events only, with matchtags
    for record, topic in messages_of(trace, topics.JOB_MANAGER):
        message = record.message
        if not topic:
            places.clear()
        elif topic != topics.JOB_JOURNAL:
            continue
        elif isinstance(message, Request):
            follower = (message.sender, message.matchtag)
            places = {key: place for key, place in places.items() if key[:2] != follower}
            asked = read_if_valid(journal.FOLLOW, message)
            if asked is None or asked.allow is None:
                chosen.discard(follower)  # it is refused, or told of all events
            else:
                chosen.add(follower)
        elif isinstance(message, Response) and record.kind == Kind.SEND and not message.errnum:
            follower = (message.routes[0], message.matchtag)
            for jobid, place, event in journal.BATCH.read(message).events:
                if place < 0:
                    continue  # annotations are no event of an eventlog
                last = places.get((*follower, jobid), place - 1)
                places[*follower, jobid] = place
                if place <= last or (place > last + 1 and follower not in chosen):
                    name = f"event {place} of {format_fluid(jobid, 'f58')}, {event.name},"
                    return f"record {record.n} tells {follower[0]} of {name} after event {last}"
    return ""


KVS_FAREWELLS: Final = tuple(map(topics.disconnect_of, topics.KVS_SERVICES))


@over_trace("ordered", topics.KVS)
def commits_are_answered_in_order(trace: Sequence[Record]) -> str:
    """The kvs stores the commits of each sender in the order in which they came (RFC 16)."""
    waiting: dict[str, list[int]] = {}  # by sender: matchtags, the oldest first
    for record, topic in messages_of(trace, topics.KVS):
        message = record.message
        if not topic:
            waiting.clear()
        elif topic in KVS_FAREWELLS and isinstance(message, Request):
            waiting.pop(message.sender, None)  # its commits are stored, and not answered
        elif topic in topics.COMMITS and isinstance(message, Request):
            if message.wants_response:
                waiting.setdefault(message.sender, []).append(message.matchtag)
        elif topic in topics.COMMITS and isinstance(message, Response):
            sender = message.routes[0]
            tags = waiting.get(sender, [])
            if message.matchtag not in tags:
                continue  # of one that had the name before
            if not message.errnum and tags[0] != message.matchtag:
                return f"record {record.n} answers a later commit of {sender} before an earlier one"
            tags.remove(message.matchtag)
    return ""


@over_trace("ids", topics.JOB_MANAGER, topics.JOB_INGEST)
def no_job_id_is_given_again(trace: Sequence[Record]) -> str:
    """The service that gives out ids is told of the greatest id that any job has had."""
    greatest = 0
    for record in trace:
        message = record.message
        if record.kind != Kind.SEND or not isinstance(message, Response) or message.errnum:
            continue
        if record.party not in (topics.JOB_MANAGER, topics.JOB_INGEST):
            continue  # others may say so, but it is a lie
        if message.topic == topics.INGEST_SUBMIT:
            greatest = max(greatest, submission.SUBMITTED.read(message).id)
        elif message.topic == topics.JOB_GETINFO:
            announced = submission.INFO.read(message).max_jobid
            if announced < greatest:
                name = format_fluid(greatest, "f58")
                return (
                    f"record {record.n} says that no id is above {announced}, and {name} was a job"
                )
    return ""


@over_trace("taken-back", topics.SCHED)
def what_was_lost_is_not_granted(trace: Sequence[Record]) -> str:
    """A grant is taken back if its nodes go before its R is durable (28.offline.3, 28.shrink.3)."""
    lost: set[int] = set()  # ranks that the scheduler knows as offline or shrunk
    ranks: dict[str, set[int]] = {}  # by key of an R that is not durable
    commits: dict[int, list[str]] = {}  # by matchtag: keys of R
    void: set[str] = set()  # keys of R that was on lost ranks when it was durable
    edition = EDITIONS[edition_of(trace[0])]
    for record, topic in messages_of(trace, topics.SCHED):
        message = record.message
        if not topic:
            for each in (lost, ranks, commits, void):
                each.clear()
        elif topic == topics.RESOURCE_ACQUIRE and isinstance(message, Response):
            _follow(lost, message, edition)
        elif topic in topics.COMMITS and isinstance(message, Request):
            puts = {key: text for how, key, text in _ops_in(message) if how == "put"}
            commits[message.matchtag] = [*puts]
            ranks |= {key: set(parse_r(text).ranks) for key, text in puts.items()}
            void -= ranks.keys()
        elif topic in topics.COMMITS and isinstance(message, Response):
            void |= {key for key in commits.pop(message.matchtag, ()) if ranks[key] & lost}
        elif topic == topics.SCHED_ALLOC and isinstance(message, Response):
            answer = read_if_valid(edition.alloc_answer, message)
            if answer is None or answer.type is not AllocType.SUCCESS:
                continue
            if (key := job_key(answer.id, "R")) in void:
                name, gone = format_fluid(answer.id, "f58"), sorted(ranks[key] & lost)
                return f"record {record.n} grants {name} ranks {gone}, which were lost before"
    return ""


def _follow(lost: set[int], response: Response, edition: Edition) -> None:
    """Note which ranks the scheduler loses and gets back."""
    for change in () if response.errnum else read_if_valid(edition.changes, response) or ():
        match change:
            case Offline(targets) | Shrunk(targets):
                lost.update(targets)
            case Online(targets):
                lost.difference_update(targets)
            case Grown(_, online, offline):
                lost.difference_update(online)
                lost.update(offline)


@over_trace("final", *SERVICES)
def each_request_has_one_last_answer(trace: Sequence[Record]) -> str:
    """A service answers a request once, or ends its stream once (RFC 6, Streaming Responses).

    The client takes up the first answer; nobody takes up another one.
    """
    asked: dict[tuple[str, str, int], list[Record]] = {}  # by service, client and matchtag
    for record in trace:
        message = record.message
        if record.kind == Kind.CONFIG:
            asked.clear()
        elif record.kind == Kind.MODULE and record.data is not None:
            module = record.data["module"]
            asked = {key: each for key, each in asked.items() if module not in key[:2]}
        elif record.kind == Kind.RECV and isinstance(message, Request):
            if message.topic == topics.disconnect_of(service_of(message.topic)):
                gone = (record.party, message.sender)
                asked = {key: each for key, each in asked.items() if key[:2] != gone}
            elif message.matchtag:
                key = (record.party, message.sender, message.matchtag)
                asked.setdefault(key, []).append(record)
        elif record.kind == Kind.SEND and isinstance(message, Response) and message.ends_rpc:
            key = (record.party, message.routes[0] if message.routes else "", message.matchtag)
            waiting = asked.get(key)
            if waiting == []:
                return f"record {record.n} is a second answer to {message.topic} of {key[1]}"
            if waiting and getattr(waiting[0].message, "routes", ()) == message.routes:
                waiting.pop(0)  # otherwise it is for a client that had the name before
    return _unanswered(asked)


def _unanswered(asked: Mapping[tuple[str, str, int], Sequence[Record]]) -> str:
    """Return what is wrong with requests that wait for their answer at rest.

    Streams may go on. Requests that wait until no job is left in a queue may have to wait for a
    job that a plugin holds: `answered` knows of that.
    """
    for (service, client, _), records in asked.items():
        for record in records:
            request = record.message
            if isinstance(request, Request) and not (
                request.is_streaming or request.topic in _WAIT_FOR_JOBS
            ):
                return f"{service} has not answered record {record.n}, {request.topic} of {client}"
    return ""


_WAIT_FOR_JOBS: Final = (topics.JOB_DRAIN, topics.JOB_IDLE)

OVER_TRACE: Final = (
    the_journal_tells_of_durable_events,
    the_journal_tells_each_event_once,
    commits_are_answered_in_order,
    no_job_id_is_given_again,
    what_was_lost_is_not_granted,
    each_request_has_one_last_answer,
)
