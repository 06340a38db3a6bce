"""Replays the cores of a recorded instance: the same inputs, and the actions compared.

Each core is made as the recorded one was at the start of its module, and takes the turns of the
trace. Nothing else runs: messages, timers, and answers of plugins and of the store come from the
records. What a core sends and notes must be what the records that follow have; its other actions
must be those of the turn's record.
"""

from __future__ import annotations

import sysconfig
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec

import flux_trio
from flux_trio._version import __version__
from flux_trio.config import is_policy_of_file
from flux_trio.cores.job_index import ENDED, ended_value, read_ended
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.kvs.ops import BackedUp, Fetched, Stored
from flux_trio.cores.plain import Plain
from flux_trio.cores.recorded_plugins import RepeatedPlugins, Unanswered, checksum
from flux_trio.cores.state import CorePart, StateError
from flux_trio.cores.turn_records import (
    TRACED,
    Turn,
    action_text,
    made_core,
    raised_text,
    read_inputs,
    read_turn,
    written_actions,
)
from flux_trio.cores.turns import Exit, Note, NoteAll
from flux_trio.editions.journal import Ended
from flux_trio.jobtap.failures import attempt
from flux_trio.messages import USERID_UNKNOWN, Event, Message, Request, Response
from flux_trio.messages.topics import DISCONNECT
from flux_trio.services.at_once import PluginTurns
from flux_trio.services.policy_files import load_policy
from flux_trio.trace import Kind, Record
from flux_trio.trace.secrets import value_without_environments

WITHOUT_CORE: Final = ("broker", "config")
"""The names of modules that decide nothing about jobs and have no core."""

TEXT_MAX: Final = 500
"""The most characters of an action that are shown."""

_PACKAGE: Final = Path(flux_trio.__file__).parent
_LIBRARIES: Final = tuple(
    Path(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib")
)

_NOTHING: Final = "nothing"
_ABSENT: Final = object()
_USER: Final = "userid"
_NBYTES: Final = Ended.__struct_fields__.index("nbytes")

# Records of a module that are no actions of its core: what plugins do and count, and those of
# messages and modules.
_OF_OTHERS: Final = frozenset(
    (Kind.HOOK, Kind.COUNTERS, Kind.MODULE, Kind.DROP, Kind.CONFIG, Kind.CLOCK, Kind.INSTANCE)
)

Shown = tuple[str, Any]
"""An action as the trace shows it: its kind, and its fields as JSON has them."""


class Unreplayable(Exception):
    """The trace lacks something that a replay needs; the text says what."""


class CoreNotMade(Exception):
    """A core of this version has raised before its first turn; the text says what and where."""


@dataclass(frozen=True)
class Difference:
    """How a core of this version differs from the recorded one.

    It differs in what follows the record `n` of the trace.
    """

    party: str
    n: int
    place: str  # what differs: an action, or a field of it
    expected: str  # what the trace has
    got: str

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place else ""
        expected, got = _cut(self.expected), _cut(self.got)
        return f"{self.party} differs{where}, record {self.n}: expected {expected}, got {got}"


@dataclass(frozen=True)
class CoreRaised:
    """A core that has raised the same exception as the recorded one, in the turn after the record
    `n`.
    """

    party: str
    n: int
    error: str  # its type and text, and where it was raised

    def __str__(self) -> str:
        return f"{self.party} raised as recorded, record {self.n}: {self.error}"


@dataclass
class Unrecorded:
    """A module whose turns are not in the trace, from the record `first` to `last`."""

    module: str
    first: int
    last: int | None = None  # None if it runs until the trace ends

    def __str__(self) -> str:
        span = f"from record {self.first}"
        if self.last is not None:
            span += f" to record {self.last}"
        return f"{self.module} is not replayed: its turns are not recorded, {span}"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."


class RecordedInstance:
    """The cores of a recorded instance, which take their turns again with its records."""

    def __init__(self) -> None:
        self.cores: dict[str, RecordedCore] = {}
        """The cores of the modules that run now, by module."""
        self.nturns = 0
        self.raised: list[CoreRaised] = []
        """The cores that have raised an exception where the recorded core had raised the same."""
        self.unrecorded: list[Unrecorded] = []
        """The modules that cannot be replayed, since the trace has not their turns. A module that
        ends and starts again meanwhile is named once."""
        self._unrecorded: dict[str, Unrecorded] = {}  # by module, until its core is replayed again
        self._version = ""  # of the flux-trio that wrote the trace

    def observe(self, record: Record) -> Difference | None:
        """Let the cores do what the next record of the trace says; return how a core differs from
        it, or None.

        Raises Unreplayable or CoreNotMade.
        """
        if record.kind == Kind.TURN:
            return self._turn(record)
        if record.kind == Kind.MODULE:
            return self._module(record)
        core = self.cores.get(record.party)
        if core is None or record.kind in _OF_OTHERS:
            return None
        if record.kind == Kind.RECV:
            core.receive(record)
            return None
        return core.compare(record)

    def _turn(self, record: Record) -> Difference | None:
        self.nturns += 1
        by = ""
        try:
            turn = read_turn(record.data)
            if turn.core:
                self._version = turn.version
            by = f", written by flux-trio {self._version} (this is {__version__})"
            if turn.core:
                self.cores[record.party] = RecordedCore(record.party, turn)
                self._unrecorded.pop(record.party, None)
            core = self.cores.get(record.party)
            if core is None:
                raise Unreplayable(f"the trace does not have the start of {record.party}")
            difference = core.turn(record.n, turn)
            if core.raised and difference is None:
                self.raised.append(CoreRaised(record.party, record.n, core.raised))
            return difference
        except StateError as error:
            raise Unreplayable(
                f"turn of {record.party} after record {record.n}{by}: {error}"
            ) from error

    def _module(self, record: Record) -> Difference | None:
        data = record.data or {}
        name = data.get("module", "")
        if data.get("what") == "started":
            if name not in self.cores and name not in WITHOUT_CORE:
                self._begin_unrecorded(name, record.n)
            return None
        if name in self._unrecorded:
            self._unrecorded[name].last = record.n
        core = self.cores.pop(name, None)
        return None if core is None else core.end(record.n)

    def _begin_unrecorded(self, module: str, n: int) -> None:
        if module in self._unrecorded:
            self._unrecorded[module].last = None
        else:
            self._unrecorded[module] = Unrecorded(module, n)
            self.unrecorded.append(self._unrecorded[module])


class RecordedCore:
    """A core that takes the recorded turns again; `start` has the arguments with which the recorded
    one was made.

    Raises StateError or CoreNotMade.
    """

    def __init__(self, party: str, start: Turn) -> None:
        self.core = _made(party, start)
        self.raised = ""
        """What the core raised in the last turn, and where; "" if it did not raise."""
        self._party = party
        self._plugins = RepeatedPlugins()
        self._turns: Any = self.core
        if isinstance(self.core, JobManagerCore):
            self._turns = PluginTurns(self.core, self._plugins)
        self._received: dict[int, Message] = {}  # since the last turn, by place of the send
        self._due: deque[Shown] = deque()  # messages and notes of the last turn
        self._not_ours: set[tuple[tuple[str, ...], int]] = set()

    def receive(self, record: Record) -> None:
        """Note a message that the module has received; its next turn may take it."""
        if record.message is not None:
            self._received[record.ref] = record.message

    def turn(self, n: int, turn: Turn) -> Difference | None:
        """Take a turn that was recorded after the record `n`; return how it differs, or None.

        Raises StateError for an input or an answer that this version does not have.
        """
        inputs = self._inputs(turn.inputs)
        if not _continues(inputs) and (missing := self.end(n)) is not None:
            return missing
        self._plugins.begin(turn.said)
        if turn.core:
            actions, error = attempt(self._turns.start, turn.now)
        else:
            actions, error = attempt(self._turns.turn, turn.now, inputs)
        if isinstance(error, StateError):
            raise error
        if isinstance(error, Unanswered):
            asked = f"a question {error.topic}, to which the trace has no answer"
            return self._differs(n, "what it asks plugins", turn.raised or "other questions", asked)
        raised = self.raised = ""
        if error is not None:  # what a core raises is compared, as what it does
            actions, raised, self.raised = [], raised_text(error), _raised(error)
        if raised != turn.raised:
            return self._differs(n, "what it raises", turn.raised, self.raised)
        if turn.asked not in (None, checksum(self._plugins.asked)):
            asked = ", ".join(self._plugins.asked) or _NOTHING
            return self._differs(n, "what it asks plugins", "other questions", asked)
        self._due.extend(_traced(actions))
        return self._compare_others(n, turn.actions, actions)

    def _inputs(self, written: list[Any]) -> list[Any]:
        taken = {each for each in written if isinstance(each, int)}
        inputs = read_inputs(written, self._message_at)
        for ref, message in self._received.items():
            if ref not in taken and isinstance(message, Request) and message.matchtag:
                self._not_ours.add((message.routes, message.matchtag))
        self._received.clear()
        return inputs

    def _message_at(self, ref: int) -> Message:
        message = self._received.get(ref)
        if message is None:
            raise StateError(f"it takes a message sent at {ref}, which it has not received")
        return message

    def _compare_others(self, n: int, expected: list[str], actions: list[Any]) -> Difference | None:
        """Compare the actions that have no record of their own."""
        others = [each for each in actions if type(each) not in TRACED]
        got = written_actions(others)
        for place in range(max(len(expected), len(got))):
            one = expected[place] if place < len(expected) else _NOTHING
            if place >= len(got):
                return self._differs(n, "an action", one, _NOTHING)
            if got[place] != one:
                return self._differs(n, "an action", one, action_text(others[place]))
        return None

    def compare(self, record: Record) -> Difference | None:
        """Compare a message or a note of the trace with the next one of this core."""
        message = record.message
        shown = (
            (str(record.kind), _as_json(record.data)) if message is None else self._sent(message)
        )
        if self._due and self._due[0] == shown:
            self._due.popleft()
            return None
        if self._is_of_others(record.message):
            return None
        if not self._due:
            return self._differs(record.n, "", _text(shown), _NOTHING)
        got = self._due[0]
        if got[0] != shown[0]:
            return self._differs(record.n, "", _text(shown), _text(got))
        place, expected, other = _first_difference(shown[1], got[1])
        return self._differs(record.n, f"{shown[0]}{place}", _json(expected), _json(other))

    def _sent(self, message: Message) -> Shown:
        """Return what the core decided about a message that its module sent."""
        shown = _shown(message)
        if isinstance(message, Event) and self._due and _USER not in self._due[0][1]:
            shown[1].pop(_USER, None)  # the broker has set it, since the core names nobody
        return shown

    def end(self, n: int) -> Difference | None:
        """Return an action of this core in its last turn that the recorded one did not take; None
        if there is none.
        """
        if not self._due:
            return None
        return self._differs(n, "", _NOTHING, _text(self._due[0]))

    def _is_of_others(self, message: Message | None) -> bool:
        """Return whether a message is not the core's: the service's own answer, or a farewell."""
        match message:
            case Response():
                key = (message.routes, message.matchtag)
                waits = any(
                    isinstance(each, Request) and (each.routes, each.matchtag) == key
                    for each in self._received.values()
                )
                if not waits and key not in self._not_ours:
                    return False
                if message.ends_rpc:
                    self._not_ours.discard(key)
                return True
            case Request():
                return message.topic.endswith(f".{DISCONNECT}")
        return False

    def _differs(self, n: int, place: str, expected: str | None, got: str | None) -> Difference:
        return Difference(self._party, n, place, expected or _NOTHING, got or _NOTHING)


def _made(party: str, start: Turn) -> CorePart:
    """Return the core with its first state. Raises StateError or CoreNotMade."""
    core, error = attempt(_loaded, start)
    if isinstance(error, StateError):
        raise error
    if error is not None:
        by = "" if start.version == __version__ else f"; flux-trio {start.version} wrote the trace"
        text = f"the core of {party} cannot be made in this version, {__version__}: "
        raise CoreNotMade(f"{text}{_raised(error)}{by}") from error
    return cast(CorePart, core)


def _loaded(start: Turn) -> CorePart:
    """Return the core; what its class or the file of a policy raises may be anything."""
    for name in _policies_of_files(start.args):
        load_policy(name)
    core = made_core(start.core, start.args)
    core.load(start.state)
    return core


def _policies_of_files(written: Plain) -> Iterator[str]:
    """Yield the policies FILE.py:Class in the written arguments of a core."""
    if isinstance(written, str):
        if is_policy_of_file(written):
            yield written
    elif isinstance(written, dict | list):
        for each in written.values() if isinstance(written, dict) else written:
            yield from _policies_of_files(each)


def _raised(error: BaseException) -> str:
    """Return what a core has raised, and where."""
    return _cut(raised_text(error)) + _raised_at(error)


def _raised_at(error: BaseException) -> str:
    """Return " (file:line)" of what the caller's `try` has called; "" if that is not known.

    Lines of libraries are passed over: an enum of Python raises in a line that nobody wants to
    mend.
    """
    place = ""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next  # the first one is the caller's
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            place = f" ({path.relative_to(_PACKAGE.parent)}:{trace.tb_lineno})"
        elif not any(map(path.is_relative_to, _LIBRARIES)) and path.is_absolute():
            place = f" ({path}:{trace.tb_lineno})"
    return place


def _continues(inputs: list[Any]) -> bool:
    """Return whether the messages of the turn before may follow this turn.

    A store that does not wait answers before they are sent (`at_once/kvs.py`).
    """
    return bool(inputs) and all(isinstance(each, (Stored, Fetched, BackedUp)) for each in inputs)


# --- actions as the trace shows them


def _traced(actions: list[Any]) -> Iterator[Shown]:
    """Yield the actions that have records; after `Exit` no action is performed."""
    for action in actions:
        match action:
            case Exit():
                return
            case Note(kind, data):
                yield from _notes([(kind, data)])
            case NoteAll(notes):
                yield from _notes(notes)
            case Request() | Response() | Event():
                yield _shown(action)


def _notes(notes: Any) -> Iterator[Shown]:
    for kind, data in notes:
        if kind not in _OF_OTHERS:
            yield str(kind), _as_json(data)


def _shown(message: Message) -> Shown:
    """Return what a sender decides about a message; the broker sets the rest."""
    match message:
        case Request(topic, payload, matchtag, flags, nodeid):
            fields: dict[str, Any] = {"matchtag": matchtag, "flags": flags, "nodeid": nodeid}
        case Response(topic, payload, errnum, matchtag, flags):
            fields = {"matchtag": matchtag, "flags": flags, "errnum": errnum}
            fields["routes"] = list(message.routes)
        case Event(topic, payload, flags=flags):
            fields = {"flags": flags}
            if message.userid != USERID_UNKNOWN:  # whom a private event is for
                fields[_USER] = message.userid
        case _:
            raise TypeError(f"expected a request, response or event, got {message!r}")
    kind = type(message).__name__.lower()
    return f"{kind} {topic}", fields | {"payload": _as_json(payload)}


def _as_json(value: Any) -> Any:
    """Return a value as it comes back from a trace, without the environments of jobs."""
    return _without_bytes(value_without_environments(value))


def _without_bytes(payload: Any) -> Any:
    """Return a commit or journal message without the bytes of finished jobs.

    Environments count in them.
    """
    match payload:
        case {"ops": list(ops)}:
            return payload | {"ops": [_op_without_bytes(op) for op in ops]}
        case {"ended": list(jobs)}:
            return payload | {"ended": [job[:_NBYTES] for job in jobs]}
    return payload


def _op_without_bytes(op: Any) -> Any:
    match op:
        case ["append", str(key), str(value)] if key.startswith(f"{ENDED}."):
            job = msgspec.structs.replace(read_ended(key, value), nbytes=0)
            return ["append", key, ended_value(job)]
    return op


def _json(value: Any) -> str:
    """Return a value as text; a key that is absent has none, and is no JSON."""
    return _NOTHING if value is _ABSENT else msgspec.json.encode(value).decode()


def _text(shown: Shown) -> str:
    return f"{shown[0]} {_json(shown[1])}"


def _first_difference(one: Any, other: Any, place: str = "") -> tuple[str, Any, Any]:
    """Return where two JSON values differ first, and what each has there, or `_ABSENT`."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one | other:
            first, second = one.get(key, _ABSENT), other.get(key, _ABSENT)
            if first != second:
                return _first_difference(first, second, f"{place}.{key}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (first, second) in enumerate(zip(one, other, strict=True)):
            if first != second:
                return _first_difference(first, second, f"{place}[{at}]")
    return place, one, other
