"""Which rules and views a record concerns: found once for each kind of record, then remembered.

Most records are nothing out of the ordinary: the answer to the one open request of its matchtag, a
request with a matchtag of its own. They are marked PLAIN, or STREAMED if they are of a stream; what
is as ordinary, and without a matchtag, UNTAGGED; all others ODD, so that a rule about what should
never be need only look at the odd ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from flux_trio.conformance import facts as told
from flux_trio.conformance.calls import GONE, OPEN, SERVES
from flux_trio.conformance.eventlogs import LOG
from flux_trio.conformance.facts import Facts
from flux_trio.conformance.leg import (
    ANY_TOPIC,
    ERROR,
    EVENT,
    HOOK,
    LOOKUP_TOPICS,
    ODD,
    OWN,
    PLAIN,
    SEND,
    STREAMED,
    UNTAGGED,
    WITH_EVENTS,
    WITH_JOBSPEC,
    WITH_R,
    WITH_UNLINK,
    Key,
    Leg,
    job_id,
    name_of,
    payload,
    received,
    said,
)
from flux_trio.conformance.rule import Each, Rule, Said, State, Subjects
from flux_trio.conformance.view import Fold, KeyOf, Parts, View
from flux_trio.messages import Event, Request, Response, service_of, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Record

PLANS_MAX: Final = 4096  # that are remembered: topics are what peers choose to send

States = dict[Key, State]
Marks = tuple[str, ...]
Where = tuple[str, Any, str, Marks]
"""Kind, type of message (None: no message), topic or event name, and marks."""

_DISCONNECT: Final = f".{topics.DISCONNECT}"
_ODD: Final = (ODD,)
_PLAIN: Final = (PLAIN,)
_STREAMED: Final = (STREAMED,)
_UNTAGGED: Final = (UNTAGGED,)
_ODD_ERROR: Final = (ODD, ERROR)
_TYPES: Final = {Request: "request", Response: "response", Event: "event"}

_WRITTEN: Final = (WITH_EVENTS, WITH_JOBSPEC, WITH_R, WITH_UNLINK)

# What the job manager takes up when a party is gone, new, or has failed.
ENDINGS: Final = (
    *received("request", topics.JOB_MANAGER_DISCONNECT, topics.SCHED_HELLO, topics.EXEC_HELLO),
    *received("response", topics.SCHED_ALLOC, topics.SCHED_FREE, mark=ERROR),
)


Keyed = tuple[Any, States, KeyOf, Fold]
Parted = tuple[Any, States, Parts, Fold]
"""What must be live, then the states of a view and how they are made: of one key, or of several."""


class Plan(NamedTuple):
    """What is done with each record of one kind.

    `kept` are clauses that such a record keeps by itself. A rule or view whose first item is an
    empty mapping is passed over.
    """

    kept: frozenset[str]
    rules: tuple[tuple[Any, Callable[..., Said], Rule], ...]
    tables: tuple[tuple[Subjects, tuple[tuple[Each, Rule], ...]], ...]
    """What is found in the record once, and the rules about each of these."""
    alone: tuple[Keyed, ...]
    """Views of one key that no other view reads: these need not wait for the others."""
    keyed: tuple[Keyed, ...]
    parted: tuple[Parted, ...]
    may_end: bool
    may_tell: bool
    """The facts may be others after it."""


class Dispatch:
    """The plans for records, by what kind of record it is."""

    def __init__(
        self,
        rules: Iterable[Rule],
        judges: Mapping[Rule, Callable[..., Said]],
        states: Mapping[Rule, States],
        views: Mapping[View, States],
    ) -> None:
        self._rules = tuple(rules)
        self._judges = judges
        self._states = states
        self._views = views
        self._read = {other for view in views for other in view.reads}
        self._plans: dict[Where, Plan] = {}
        self._exec_service = ""
        self._logs = views.get(LOG, {})
        self._open = views.get(OPEN, {})
        self._serves = views.get(SERVES, {})
        self._gone = views.get(GONE, {})

    def plan(self, record: Record, facts: Facts) -> Plan:
        """What to do with a record."""
        found = record.message
        where: Where
        if isinstance(found, Response):
            where = (record.kind, Response, found.topic, self._of_response(record, found, facts))
        elif isinstance(found, Request):
            where = (record.kind, Request, found.topic, self._of_request(record, found))
        elif found is None:
            where = self._of_note(record, facts)
        else:
            where = (record.kind, type(found), getattr(found, "topic", ""), ())
        plan = self._plans.get(where)
        return self._made(where) if plan is None else plan

    def know(self, facts: Facts) -> None:
        """The facts are these from now on."""
        if facts.exec_service != self._exec_service:
            self._plans.clear()
            self._exec_service = facts.exec_service

    # --- marks

    def _of_note(self, record: Record, facts: Facts) -> Where:
        """By the name of an event or hook.

        An event is plain when the job manager logs it of a job that goes on. The kind is spelled
        out, since members of an enumeration are slow to look up by.
        """
        if record.kind == EVENT:
            log: Any = self._logs.get(job_id(record))
            is_plain = log is not None and not log.ended and record.party == facts.manager
            return EVENT, None, name_of(record), _PLAIN if is_plain else _ODD
        if record.kind == HOOK:
            return HOOK, None, str((record.data or {}).get("hook")), ()
        return str(record.kind), None, "", ()

    def _of_response(self, record: Record, found: Response, facts: Facts) -> Marks:
        if found.errnum:
            return _ODD_ERROR
        client = found.routes[0] if found.routes else ""
        marks: Marks = _ODD
        if (record.kind == SEND or record.party == client) and not isinstance(found.payload, str):
            marks = self._of_answer(client, found)
        if record.party == facts.scheduler and found.topic in LOOKUP_TOPICS:
            return (*marks, WITH_R)
        if "type" in payload(record):
            return (*marks, said(payload(record)["type"]))
        return marks

    def _of_answer(self, client: str, found: Response) -> Marks:
        """Of a success that comes to who asked."""
        if not found.matchtag:
            return _UNTAGGED
        call: Any = self._open.get((client, found.matchtag))
        if call is None or call.topic != found.topic or call.asked != 1 or not call.is_anywhere:
            return _ODD
        if call.is_streaming:
            return _STREAMED if found.flags & STREAMING else _ODD
        return _ODD if found.flags & STREAMING else _PLAIN

    def _of_request(self, record: Record, found: Request) -> Marks:
        if record.kind != SEND:
            return _PLAIN if self._is_plain_received(record, found) else _ODD
        marks = self._of_asking(record, found)
        return marks + _of_commit(record) if found.topic == topics.KVS_COMMIT else marks

    def _of_asking(self, record: Record, found: Request) -> Marks:
        is_ordinary = (
            bool(record.peer)
            and not found.flags & NORESPONSE
            and isinstance(found.payload, dict)
            and "." in found.topic.strip(".")
        )
        if not is_ordinary:
            return _ODD
        if not found.matchtag:
            return _UNTAGGED
        return _ODD if (found.sender, found.matchtag) in self._open else _PLAIN

    def _is_plain_received(self, record: Record, found: Request) -> bool:
        service = service_of(found.topic)
        if self._serves.get(service) != record.party or found.topic.endswith(_DISCONNECT):
            return False
        gone: Any = self._gone.get(service)
        return gone is None or gone[0] != found.sender

    # --- plans

    def _made(self, where: Where) -> Plan:
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
        kind, type_, topic, marks = where
        if type_ is not None and self._exec_service and service_of(topic) == self._exec_service:
            topic = "<exec>" + topic[len(self._exec_service) :]
        here = _Here(kind, _TYPES.get(type_, ""), topic, marks)
        rules = [
            (live, judge, rule)
            for rule, judge in self._judges.items()
            if (live := self._live(here, rule.legs, self._states.get(rule))) is not None
        ]
        alone, keyed, parted = self._foldings(here)
        kept = frozenset(rule.clause for rule in self._rules if here.is_on(rule.kept_on))
        may_end, may_tell = here.is_on(ENDINGS), here.is_on(told.TELLING)
        tables = self._tables(here)
        plan = Plan(kept, tuple(rules), tables, alone, keyed, parted, may_end, may_tell)
        self._plans[where] = plan
        return plan

    def _foldings(
        self, here: _Here
    ) -> tuple[tuple[Keyed, ...], tuple[Keyed, ...], tuple[Parted, ...]]:
        alone: list[Keyed] = []
        keyed: list[Keyed] = []
        parted: list[Parted] = []
        for view, states in self._views.items():
            live = self._live(here, view.legs, states)
            if live is None:
                continue
            if view.key is not None and not here.is_on(view.many):
                which = keyed if view in self._read else alone
                which.append((live, states, view.key, view.fold))
            elif view.parts is not None:
                parted.append((live, states, view.parts, view.fold))
        return tuple(alone), tuple(keyed), tuple(parted)

    def _tables(self, here: _Here) -> tuple[tuple[Subjects, tuple[tuple[Each, Rule], ...]], ...]:
        """Rules about the same subjects together."""
        found: dict[Subjects, list[tuple[Each, Rule]]] = {}
        for rule in self._rules:
            if rule.subjects is not None and rule.each is not None and here.is_on(rule.legs):
                found.setdefault(rule.subjects, []).append((rule.each, rule))
        return tuple((subjects, tuple(rules)) for subjects, rules in found.items())

    def _live(self, here: _Here, legs: Iterable[Leg], own: Any) -> Any:
        """What must not be empty for a record to be looked at; None when it is not at all."""
        live: Any = None
        for leg in legs:
            if here.is_covered(leg):
                if leg.live is None:
                    return True
                live = own if leg.live is OWN else self._views[leg.live]
        return live


class _Here(NamedTuple):
    """A kind of record."""

    kind: str
    type: str
    topic: str
    marks: Marks

    def is_covered(self, leg: Leg) -> bool:
        """Whether a leg is about such records."""
        if self.kind != leg.kind or self.type != leg.type:
            return False
        if leg.mark and leg.mark not in self.marks:
            return False
        before, star, after = leg.topic.partition(ANY_TOPIC)
        if not star:
            return self.topic == leg.topic
        return self.topic.startswith(before) and self.topic.endswith(after)

    def is_on(self, legs: Iterable[Leg]) -> bool:
        """Whether one of the legs is about such records."""
        return any(map(self.is_covered, legs))


def _of_commit(record: Record) -> Marks:
    """What the operations of a kvs.commit are about."""
    ops = payload(record).get("ops")
    found = set()
    for op in ops if isinstance(ops, list) else ():
        if isinstance(op, (list, tuple)) and len(op) > 1:
            found.add(str(op[1]).rpartition(".")[2])
            if op[0] == WITH_UNLINK:
                found.add(WITH_UNLINK)
    return tuple(mark for mark in _WRITTEN if mark in found)
