"""What a rule is: one clause as a small machine over the trace.

A rule names the records it reads (`legs`), under which key it keeps state (a job id, an RPC), and
a function from the state and a record to the next state and an outcome. State is hashable, and
None when nothing is live, so that a monitor's whole state is small and can be compared. A rule
reads the trace only, and judges a party by what that party had sent and received by then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from flux_trio.conformance.facts import Facts
from flux_trio.messages import Event, Message, Request, Response, topics
from flux_trio.trace import Kind, Record

MessageType: TypeAlias = Literal["request", "response", "event"]
Key: TypeAlias = Hashable
State: TypeAlias = Hashable

ANY_TOPIC: Final = "*"


class Leg(NamedTuple):
    """Which records: the kind, and for messages the type and topic.

    For topics of the execution service, whose name is its own, `topic` is "<exec>.start".
    """

    kind: str
    type: str = ""
    topic: str = ""


def sent(type_: MessageType, *topics: str) -> list[Leg]:
    """The moments a party sends such a message."""
    return [Leg(Kind.SEND.value, type_, topic) for topic in topics]


def received(type_: MessageType, *topics: str) -> list[Leg]:
    """The moments a party takes such a message up."""
    return [Leg(Kind.RECV.value, type_, topic) for topic in topics]


def logged(*names: str) -> list[Leg]:
    """Events of job eventlogs, by name; ANY_TOPIC for all."""
    return [Leg(Kind.EVENT.value, "", name) for name in names]


@dataclass(frozen=True, slots=True)
class Broken:
    """The clause was not kept: what was expected and what came, for whoever has to mend it.

    `because` are the places (`n`) of the earlier records that show why; the record in hand is the
    one that broke it.
    """

    text: str
    because: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What a rule makes of a record.

    `state` is kept under the key (None: nothing is live). `kept` says that the clause was
    exercised and kept here; `broken` that it was not.
    """

    state: State = None
    kept: bool = False
    broken: Broken | None = None


Apply: TypeAlias = Callable[[State, Record, Facts], Step]
KeyOf: TypeAlias = Callable[[Record], Key | None]
Clears: TypeAlias = Callable[[Request, Facts], bool]
Owed: TypeAlias = Callable[[State, Facts], Broken | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One clause as a machine.

    `clause` is its id in the registry (or an invariant's name). A record on one of `legs` is
    applied to the state under `key(record)`; a key of None passes it over. `needs_crossing` marks a
    rule that must tell sends from receipts: a recording of a router cannot exercise it. `clears`
    says of a request taken up that it ends everything live here (`scheduler_lost`, `exec_lost`).
    `owed` says of a live state what somebody has failed to do, should nothing more ever happen.
    """

    clause: str
    legs: tuple[Leg, ...]
    key: KeyOf
    apply: Apply
    needs_crossing: bool = False
    clears: Clears | None = None
    owed: Owed | None = None


class Rules:
    """A file's rules, registered as they are written."""

    def __init__(self) -> None:
        self.all: list[Rule] = []

    def rule(
        self,
        clause: str,
        *legs: Iterable[Leg],
        key: KeyOf,
        needs_crossing: bool = False,
        clears: Clears | None = None,
        owed: Owed | None = None,
    ) -> Callable[[Apply], Apply]:
        """Register the decorated function as the rule of `clause`."""

        def register(apply: Apply) -> Apply:
            flat = tuple(leg for group in legs for leg in group)
            self.all.append(Rule(clause, flat, key, apply, needs_crossing, clears, owed))
            return apply

        return register

    def check(
        self, clause: str, *legs: Iterable[Leg], needs_crossing: bool = False
    ) -> Callable[[Callable[[Record, Facts], Broken | bool | None]], Any]:
        """Register a rule without state: True kept, None not exercised, Broken."""

        def register(judge: Callable[[Record, Facts], Broken | bool | None]) -> Any:
            def apply(_state: State, record: Record, facts: Facts) -> Step:
                said = judge(record, facts)
                if isinstance(said, Broken):
                    return Step(broken=said)
                return Step(kept=bool(said))

            self.rule(clause, *legs, key=no_key, needs_crossing=needs_crossing)(apply)
            return judge

        return register


# --- who is gone, keys, and reading records


def scheduler_lost(request: Request, facts: Facts) -> bool:
    """The job manager hears that the scheduler is gone, or a scheduler starts anew."""
    if request.topic == topics.JOB_MANAGER_DISCONNECT:
        return request.sender == facts.scheduler
    return request.topic == topics.SCHED_HELLO


def exec_lost(request: Request, facts: Facts) -> bool:
    """The job manager hears that the execution service is gone, or one starts anew."""
    if request.topic == topics.JOB_MANAGER_DISCONNECT:
        return request.sender == facts.exec_peer
    return request.topic == topics.EXEC_HELLO


def no_key(_record: Record) -> Key:
    """One state for all records: for rules that keep none, or one."""
    return ()


def job_id(record: Record) -> Key | None:
    """The job a message or eventlog event is about; None when it does not say."""
    found = payload(record).get("id")
    return found if type(found) is int else None


def rpc(record: Record) -> Key | None:
    """The RPC a message belongs to: client and matchtag; None without a matchtag."""
    message = record.message
    if isinstance(message, (Request, Response)) and message.matchtag:
        return (message.routes[0] if message.routes else "", message.topic, message.matchtag)
    return None


def message(record: Record) -> Message:
    """The message of a record that is known to have one."""
    assert record.message is not None
    return record.message


def payload(record: Record) -> dict[str, Any]:
    """The payload object of a message, or the data of another record; {} when there is none."""
    if record.message is None:
        return record.data or {}
    if isinstance(record.message, (Request, Response, Event)):
        found = record.message.payload
        return found if isinstance(found, dict) else {}
    return {}


def errnum(record: Record) -> int:
    """The errnum of a response, 0 for anything else."""
    return record.message.errnum if isinstance(record.message, Response) else 0
