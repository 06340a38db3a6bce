"""Traces for the judge: finding records, and changing a trace so that it breaks a clause.

Every change returns a new trace, numbered from 1, in which each receipt still points at its send.
A message is one thing: what is done to its send is done to its receipts and drops too, unless the
helper's name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from flux_trio.formats import format_fluid
from flux_trio.judge import load_clauses
from flux_trio.judge.engine.monitor import Monitor
from flux_trio.judge.engine.rule import Rule
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Event, Message, Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Kind, Record

Trace = list[Record]

CLAUSES = load_clauses()
REMOVED = object()  # the value of a key that an edit takes away
SEND, RECV = Kind.SEND.value, Kind.RECV.value


def judge(
    trace: Iterable[Record], rules: Iterable[Rule], *, cut: bool = False, is_late: bool = False
) -> Monitor:
    """A monitor that has seen a whole simulated trace, up to its rest unless it was `cut`.

    If it `is_late`, a service takes its time on purpose before it acts on a message.
    """
    monitor = Monitor(rules, CLAUSES, is_simulated=not is_late)
    for record in trace:
        monitor.observe(record)
    if not cut:
        monitor.finish()
    return monitor


def texts_of(trace: Iterable[Record], clause: str) -> list[str]:
    """The texts of the violations of a clause, in a trace that was cut."""
    found = judge(trace, ALL_RULES, cut=True).violations
    return [each.text for each in found if each.clause == clause]


# --- finding


def find_all(
    trace: Trace,
    topic: str = "",
    type_: str = "",
    *,
    kind: str = SEND,
    party: str = "",
    peer: str = "",
    errnum: int | None = None,
    **keys: Any,
) -> Trace:
    """Records of messages of a topic; `keys` are keys of the payload and their values."""
    found = []
    for record in trace:
        message = record.message
        if message is None or record.kind != kind or getattr(message, "topic", "") != topic:
            continue
        if type_ and type(message).__name__.lower() != type_:
            continue
        if (party and record.party != party) or (peer and record.peer != peer):
            continue
        if errnum is not None and getattr(message, "errnum", 0) != errnum:
            continue
        if _has(getattr(message, "payload", None), keys):
            found.append(record)
    return found


def find(trace: Trace, topic: str, type_: str = "", *, nth: int = 0, **how: Any) -> Record:
    """One of the records that `find_all` finds: the first, unless `nth` says which."""
    return _pick(find_all(trace, topic, type_, **how), nth, f"{type_} {topic} {how}")


def find_event(trace: Trace, name: str, jobid: int | None = None, *, nth: int = 0) -> Record:
    """The record of a job's eventlog event."""
    events = [record for record in trace if record.kind == Kind.EVENT and record.data]
    wanted = {"name": name} if jobid is None else {"name": name, "id": jobid}
    return _pick([r for r in events if _has(r.data, wanted)], nth, f"event {wanted}")


def find_note(trace: Trace, kind: str, *, nth: int = 0, party: str = "", **keys: Any) -> Record:
    """A record that is no message: of a kind, with keys in its data."""
    notes = [r for r in trace if r.kind == kind and _has(r.data, keys)]
    return _pick([r for r in notes if not party or r.party == party], nth, f"{kind} {keys}")


def receipt(trace: Trace, send: Record) -> Record:
    """The first record of the sent message's being taken up."""
    return _pick([r for r in trace if r.kind == RECV and r.ref == send.n], 0, f"receipt of {send}")


# --- changing


def drop(trace: Trace, *records: Record) -> Trace:
    """Without these messages and notes."""
    gone = {id(each) for record in records for each in _whole(trace, record)}
    return renumber([record for record in trace if id(record) not in gone])


def insert(trace: Trace, anchor: Record, *records: Record, before: bool = False) -> Trace:
    """With made records right after `anchor` (a message: after its last receipt), or `before`."""
    last = _n_max(trace)
    places = {record.n: last + place for place, record in enumerate(records, 1)}
    made = [
        msgspec.structs.replace(
            record, n=places[record.n], ref=places.get(record.ref, 0), t=anchor.t
        )
        for record in records
    ]
    at = _place(trace, anchor if before else _whole(trace, anchor)[-1]) + (not before)
    return renumber([*trace[:at], *made, *trace[at:]])


def duplicate(trace: Trace, record: Record, after: Record | None = None) -> Trace:
    """The message or note twice: the second after the first, or after another record."""
    return insert(trace, after or record, *_whole(trace, record))


def move(
    trace: Trace, record: Record, *, after: Record | None = None, before: Record | None = None
) -> Trace:
    """The message or note at another place: sent and received there, at the time of that place."""
    anchor = after or before
    assert anchor is not None
    moved = _whole(trace, record)
    assert anchor not in moved, "a record cannot be moved to itself"
    rest = [each for each in trace if not any(each is one for one in moved)]
    return insert(rest, anchor, *moved, before=before is not None)


def edit(trace: Trace, record: Record, **fields: Any) -> Trace:
    """The message with other fields (payload, errnum, flags, matchtag, topic, routes...)."""
    return _with_message(trace, record, lambda old: msgspec.structs.replace(old, **fields))


def edit_payload(trace: Trace, record: Record, **keys: Any) -> Trace:
    """The message with other keys in its payload object; REMOVED takes one away."""

    def change(old: Any) -> Message:
        changed: Message = msgspec.structs.replace(old, payload=_edited(old.payload, keys))
        return changed

    return _with_message(trace, record, change)


def edit_all(trace: Trace, records: Iterable[Record], **keys: Any) -> Trace:
    """`edit_payload` of several."""
    for record in records:
        trace = edit_payload(trace, trace[record.n - 1], **keys)
    return trace


def edit_note(trace: Trace, record: Record, **keys: Any) -> Trace:
    """The note with other keys in its data; REMOVED takes one away."""
    other = msgspec.structs.replace(record, data=_edited(record.data or {}, keys))
    return [other if each is record else each for each in trace]


def edit_record(trace: Trace, record: Record, **fields: Any) -> Trace:
    """The record with other fields of its own, such as `peer`; its receipts stay as they are."""
    other = msgspec.structs.replace(record, **fields)
    return [other if each is record else each for each in trace]


def edit_r(trace: Trace, jobid: int, text: str) -> Trace:
    """Another text where the R of a job is put into the KVS."""
    name = f"{format_fluid(jobid, 'kvs')}.R"
    for record in find_all(trace, topics.KVS_COMMIT, "request"):
        message: Any = record.message
        ops = message.payload["ops"]
        if any(op[:2] == ["put", name] for op in ops):
            other = [["put", name, text] if op[:2] == ["put", name] else op for op in ops]
            return edit_payload(trace, record, ops=other)
    raise AssertionError(f"no R of job {jobid} in the trace")


def cut(trace: Trace, last: Record) -> Trace:
    """Up to this record: nothing more happened."""
    return trace[: _place(trace, last) + 1]


def cut_before(trace: Trace, record: Record) -> Trace:
    """Up to this record, without it: whoever was about to act never did."""
    return trace[: _place(trace, record)]


def renumber(trace: Iterable[Record]) -> Trace:
    """Places from 1 in the order of the list, receipts still pointing at their sends."""
    records = list(trace)
    places = {record.n: place for place, record in enumerate(records, 1)}
    return [
        msgspec.structs.replace(record, n=place, ref=places.get(record.ref, 0))
        for place, record in enumerate(records, 1)
    ]


# --- making


def made(party: str, peer: str, message: Request | Response | Event) -> Trace:
    """A message as `party` sends it and `peer` takes it up at once: to be inserted."""
    if isinstance(message, Request) and not message.routes:
        message = msgspec.structs.replace(message, routes=(party,))
    if isinstance(message, Response) and not message.routes:
        message = msgspec.structs.replace(message, routes=(peer,))
    return [
        Record(1, 0.0, SEND, party, peer, 0, message),
        Record(2, 0.0, RECV, peer, "", 1, message),
    ]


def attached(name: str = topics.SCHED) -> tuple[Trace, ...]:
    """A scheduler comes."""
    manager, mode = topics.JOB_MANAGER, {"mode": "unlimited"}
    return (
        made(name, manager, Request(topics.SCHED_HELLO, None, 1, STREAMING)),
        made(manager, name, Response(topics.SCHED_HELLO, None, Errno.ENODATA, 1, STREAMING)),
        made(name, manager, Request(topics.SCHED_READY, mode, 2)),
        made(manager, name, Response(topics.SCHED_READY, {"count": 0}, 0, 2)),
    )


def come_back(party: str, peer: str = "client-1") -> Trace:
    """`party` does something else and returns to its inbox: to be inserted.

    After it, whatever it took up before counts as looked at.
    """
    answer = Response("any.thing", {}, 0, 1, routes=(peer,))
    done, _taken_up = made(party, peer, answer)
    asked, received = made(peer, party, Request("any.thing", {}, 1))
    return [
        done,
        msgspec.structs.replace(asked, n=2),
        msgspec.structs.replace(received, n=3, ref=2),
    ]


def made_event(jobid: int, name: str, party: str = "job-manager", **context: Any) -> Record:
    """An event of a job's eventlog: to be inserted."""
    data = {"id": jobid, "name": name, "context": context}
    return Record(1, 0.0, Kind.EVENT.value, party, data=data)


def made_note(kind: str, party: str, **data: Any) -> Record:
    """A note: to be inserted."""
    return Record(1, 0.0, kind, party, data=data)


def new_turn(trace: Trace, after: Record, party: str) -> tuple[Trace, Record]:
    """The party sends something after the record, and comes back to its inbox: it has looked at all
    that it took up before. The record to insert after.
    """
    trace = insert(trace, after, *made(party, "", Event("said")))
    said = find(trace[after.n :], "said")
    trace = insert(trace, said, *made("", party, Event("heard")))
    return trace, find(trace[said.n :], "heard")


def crash(trace: Trace, module: str, *services: str, reason: str = "ValueError()") -> Trace:
    """The module crashes at the end of the trace; word of it is on its way to these services."""
    for service in services:
        sent, _ = made(module, service, Request(f"{service}.disconnect", flags=NORESPONSE))
        trace = insert(trace, trace[-1], sent)
    note = made_note(Kind.MODULE.value, "broker", module=module, what="crashed", reason=reason)
    return insert(trace, trace[-1], note)


def hand_made(*steps: Trace | Record, epoch: float = 1e9) -> Trace:
    """A whole trace of made messages and notes, a second between them."""
    trace: Trace = []
    for place, step in enumerate(steps):
        records = [step] if isinstance(step, Record) else step
        at = len(trace)
        trace += [
            msgspec.structs.replace(r, n=at + r.n, ref=r.ref and at + r.ref, t=epoch + place)
            for r in records
        ]
    return trace


CONTEXTS: dict[str, dict[str, Any]] = {
    "submit": {"userid": 1000},
    "priority": {"priority": 16},
    "exception": {"type": "cancel", "severity": 0},
    "finish": {"status": 0},
    "release": {"ranks": "all", "final": True},
}


class ByHand:
    """A monitor of some rules that is told one record after the other, all of the job manager."""

    def __init__(self, rules: Iterable[Rule], clauses: Iterable[str] = (), step_s: float = 1.0):
        chosen = set(clauses)
        kept = [each for each in rules if not chosen or each.clause in chosen]
        self.monitor = Monitor(kept, {})
        self._n = 0
        self._step_s = step_s

    @property
    def named(self) -> list[str]:
        """The clauses that are broken so far."""
        return [each.clause for each in self.monitor.violations]

    def put(
        self,
        kind: Kind,
        message: Message | None = None,
        data: dict[str, Any] | None = None,
        *,
        party: str = topics.JOB_MANAGER,
        peer: str = topics.KVS,
    ) -> None:
        """The next record, `step_s` seconds after the last one."""
        self._n += 1
        t = 1.0 + (self._n - 1) * self._step_s
        self.monitor.observe(Record(self._n, t, kind, party, peer, 0, message, data))

    def log(self, *names: str, job: int = 1, **context: Any) -> None:
        """Events of a job, with their usual contexts or this one."""
        for name in names:
            data = {"id": job, "name": name, "context": context or CONTEXTS.get(name, {})}
            self.put(Kind.EVENT, data=data)


# --- how


def _pick(found: Trace, nth: int, what: str) -> Record:
    assert found, f"the trace has no {what}"
    assert -len(found) <= nth < len(found), f"the trace has only {len(found)} of {what}"
    return found[nth]


def _has(found: Any, keys: Mapping[str, Any]) -> bool:
    if not keys:
        return True
    return isinstance(found, dict) and all(
        key in found and found[key] == value for key, value in keys.items()
    )


def _whole(trace: Trace, record: Record) -> Trace:
    """The send of the record's message, its receipts and drops; or the note alone."""
    if record.message is None:
        return [record]
    at = record.ref or record.n
    return [each for each in trace if at in (each.n, each.ref)]


def _with_message(trace: Trace, record: Record, change: Callable[[Any], Message]) -> Trace:
    whole = {each.n for each in _whole(trace, record)}
    return [
        msgspec.structs.replace(each, message=change(each.message)) if each.n in whole else each
        for each in trace
    ]


def _edited(old: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    assert isinstance(old, dict), f"expected an object to edit, got {old!r}"
    merged = {**old, **keys}
    return {key: value for key, value in merged.items() if value is not REMOVED}


def _place(trace: Trace, record: Record) -> int:
    return next(at for at, each in enumerate(trace) if each is record)


def _n_max(trace: Trace) -> int:
    return max((record.n for record in trace), default=0)
