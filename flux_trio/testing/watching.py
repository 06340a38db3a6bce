"""Judge the instances that a test opens by the clauses of the RFCs.

Each instance has a monitor, which watches it while it runs. If a test ends an instance that is
busy, missing responses and events cannot be judged. If the instance is at rest when it begins to
end, a response or event that is still due is a violation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from flux_trio.instance import more_sinks
from flux_trio.judge import Judgement, Monitor, Violation, load_clauses
from flux_trio.judge.rules import CLASSIC, edition_of
from flux_trio.lab.properties.world_judge import LONG_TEXT, clause_rules
from flux_trio.messages import Message, Request, Response, service_of, topics
from flux_trio.trace import Batches, Kind, Record, Sink
from flux_trio.views import verdict_text


class ClausesBroken(AssertionError):
    """An instance or one of its peers broke clauses; the text shows the messages."""

    def __init__(self, violations: list[Violation], text: str) -> None:
        super().__init__(text)
        self.violations = violations


class _Watcher:
    """A monitor, and the records for its violations."""

    def __init__(self) -> None:
        self._begin(CLASSIC)
        self._records: list[Record] = []
        self._rest = _RestTracker()
        self._is_ending = False
        self._reported: set[tuple[str, str, str]] = set()

    def _begin(self, edition: str) -> None:
        self._monitor = Monitor(clause_rules(edition), load_clauses())
        self._batches = Batches(self._monitor.observe)

    def observe(self, record: Record) -> None:
        """Take the next record; a Sink."""
        if record.kind == Kind.CONFIG and all(r.kind == Kind.INSTANCE for r in self._records):
            self._begin(edition_of(record))
        self._records.append(record)
        self._batches.append(record)
        self._rest.observe(record)
        if record.kind == Kind.INSTANCE:
            self.ask_for_debts()
            self._is_ending = True

    def ask_for_debts(self) -> None:
        """If the instance is at rest, what is due now is a violation, unless it ends already."""
        if self._rest.is_reached and not self._is_ending:
            self._judged().finish()

    def broken(self) -> frozenset[str]:
        """Return the clauses that were broken so far."""
        return frozenset(each.clause for each in self._judged().violations)

    def news(self, breaking: Collection[str]) -> list[Violation]:
        """Return what this has not returned before of clauses other than `breaking`."""
        allowed = {*breaking, LONG_TEXT}
        found = [each for each in self._judged().violations if each.clause not in allowed]
        news = [each for each in found if _key(each) not in self._reported]
        self._reported.update(map(_key, news))
        return news

    def show(self, violations: list[Violation]) -> str:
        """Return the text of violations with their messages."""
        records = {record.n: record for record in self._records}
        verdicts = self._judged().verdicts()
        shown = Judgement("watched", len(records), verdicts, tuple(violations), {})
        return verdict_text(shown, records)

    def _judged(self) -> Monitor:
        """Return the monitor, which has judged all records."""
        self._batches.flush()
        return self._monitor


def _key(violation: Violation) -> tuple[str, str, str]:
    """Return what stays the same of a debt that is found again, at a later record."""
    return violation.clause, violation.party, violation.text


class _RestTracker:
    """Finds out whether an instance is at rest.

    It is if no job is active, no message is on its way, the kvs has answered all requests, and no
    module has gone without a word of the broker, as all do when an instance is canceled.
    """

    def __init__(self) -> None:
        self._on_their_way: set[int] = set()  # numbers of sent requests and responses
        self._at_the_store: set[tuple[str, int]] = (
            set()
        )  # party and matchtag of open calls to the kvs
        self._modules: set[str] = set()
        self._gone: set[str] = set()  # modules without a connection, of which the broker is to tell
        self._is_idle = True  # the job manager said so last, and no job has had an event since

    def observe(self, record: Record) -> None:
        """Take the next record."""
        match record.kind:
            case Kind.MODULE if record.data:
                self._modules.add(record.data["module"])
                self._gone.discard(record.data["module"])
            case Kind.SEND if record.party in self._modules and _is_disconnect(record.message):
                self._gone.add(record.party)
            case Kind.SEND if record.peer and _is_awaited(record.message):
                self._on_their_way.add(record.n)
                if isinstance(record.message, Request) and _is_call_of_kvs(record.message):
                    self._at_the_store.add((record.party, record.message.matchtag))
            case Kind.RECV | Kind.DROP:
                self._on_their_way.discard(record.ref)
                if isinstance(record.message, Response):
                    self._at_the_store.discard((record.party, record.message.matchtag))
            case Kind.EVENT:
                self._is_idle = False
            case Kind.STATE if record.data and record.data["service"] == topics.JOB_MANAGER:
                self._is_idle = not record.data["jobs"]

    @property
    def is_reached(self) -> bool:
        """Whether the instance is at rest after the last record."""
        return self._is_idle and not (self._on_their_way or self._at_the_store or self._gone)


def _is_call_of_kvs(request: Request) -> bool:
    is_call = request.matchtag and not request.is_streaming
    return bool(is_call) and service_of(request.topic) in topics.KVS_SERVICES


def _is_disconnect(message: Message | None) -> bool:
    return isinstance(message, Request) and message.topic.endswith(topics.DISCONNECT)


def _is_awaited(message: Message | None) -> bool:
    """Whether the receiver acts on `message`; disconnects of a test's clients do not count."""
    match message:
        case Request():
            return not _is_disconnect(message)
        case Response():
            return True
    return False


class Watched:
    """What the instances of a block of `watched` have broken; a call returns the clauses so far."""

    def __init__(self, breaking: Collection[str]) -> None:
        self._breaking = breaking
        self._watchers: list[_Watcher] = []

    def __call__(self) -> frozenset[str]:
        return frozenset[str]().union(*(each.broken() for each in self._watchers))

    def check(self) -> None:
        """Raise ClausesBroken for what was broken since the last check.

        A response or event that is still due of an instance at rest is a violation.
        """
        __tracebackhide__ = True
        for watcher in self._watchers:
            watcher.ask_for_debts()
        self._raise_news()

    def _make_sink(self) -> Sink:
        self._watchers.append(_Watcher())
        return self._watchers[-1].observe

    def _raise_news(self) -> None:
        __tracebackhide__ = True
        for watcher in self._watchers:
            violations = watcher.news(self._breaking)
            if violations:
                raise ClausesBroken(violations, watcher.show(violations))


@contextmanager
def watched(breaking: Collection[str] = ()) -> Iterator[Watched]:
    """Judge every instance that is opened in the block, in this context and its Trio runs.

    Yields a function that returns the clauses that were broken so far. `breaking` are the clauses
    that the test breaks on purpose. At the end of the block, raises ClausesBroken if other clauses
    were broken, unless the block has failed itself.
    """
    found = Watched(breaking)
    token = more_sinks.set((*more_sinks.get(), found._make_sink))
    try:
        yield found
    finally:
        more_sinks.reset(token)
    found._raise_news()
