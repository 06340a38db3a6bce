"""The state of a core without its numbering, and a digest of it.

Two states may differ only in how jobs, matchtags and times are numbered. Such states decide alike,
and their normalised states are equal: each numbered value is replaced by its place.

    a job id, a Stamp, another Number    ["job", 1]: its rank among all of that kind in the state
    a matchtag                           its rank among those of the same sender
    a Time                               ["time", 0.1]: seconds from the turn's `now`
    a Last, `now` itself                 left out
    texts for people                     left out
    values computed from others          whether it is there

0 and infinity stay as they are: they stand for "not set" and "never". The type of a value says what
it means (`formats/meanings.py`): annotations in the bodies of classes, the return type of
`__getstate__`, and `payload_types` for the messages that a core holds. A key of the kvs is
taken apart; so is an eventlog or an R that is to be written. A value without such a type is kept as
it is: an id in the text of an error, or in the context of an event, is not replaced.

Two equal objects that can change count as two objects, as in `put_down`; frozen ones do not.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, get_args, is_typeddict

import msgspec

from flux_trio.cores.job_index import ACTIVE, ENDED
from flux_trio.cores.plain import class_of, contents_of
from flux_trio.cores.state import Part, parts_of
from flux_trio.editions import Codec
from flux_trio.formats import FormatError, parse_eventlog
from flux_trio.formats.meanings import Keys, Meaning, Number
from flux_trio.messages import Event, FluxError, Request, Response
from tests.support.payload_types import PayloadTypes, payload_types
from tests.support.type_hints import (
    Hint,
    hints_of,
    is_value,
    item_hints,
    meaning_of,
    origin_of,
    own_meaning,
    resolve,
    state_hint,
    types_by_key,
)

Normal: TypeAlias = Any
"""What JSON can hold."""


class Marked(NamedTuple):
    """A state with `["matchtag"]` in place of each matchtag.

    `matchtags` has them in their order: the sender, "" for the core itself, and the matchtag.
    `lasts` says how far the core's numberings have got.
    """

    state: Normal
    matchtags: tuple[tuple[str, int], ...]
    lasts: tuple[int, ...]


TIME_DIGITS: Final = 5
"""Decimals of a difference of times: floats near today's epoch are 2.4e-7 s apart, and what was
computed from two of them may be a few such steps off. Times that are closer keep their order."""

_DIGEST_BYTES: Final = 16
_JOB: Final = "job"
_STAMP: Final = "stamp"
_MATCHTAG: Final = "matchtag"
_US: Final = 1e6
_NO_USEC: Final = 1 << 63

_COLLECTIONS: Final = (list, deque, set, frozenset, dict, OrderedDict, Counter, tuple)

_ID_KEY: Final = re.compile(
    r"job\.(?P<dothex>[0-9a-f]{4}(?:\.[0-9a-f]{4}){3})(?P<rest>\..*)?"
    rf"|{ACTIVE}\.(?P<active>[0-9a-f]{{16}})"
    rf"|{ENDED}\.(?P<usec>[0-9a-f]{{16}})\.(?P<ended>[0-9a-f]{{16}})",
    re.DOTALL,
)


def normalised(core: Part) -> Normal:
    """Return the state of `core`, by path and attribute, without its numbering."""
    walk = _Walk(payload_types(core))
    found = walk.parts(parts_of(core))
    return _Places(walk.numbers, walk.times, walk.now).settle(found)


def fingerprint(core: Part) -> str:
    """Return a text that is equal for two cores with equal `normalised` states."""
    return digest_of(normalised(core))


def marked(parts: Mapping[str, Part], payload_types: PayloadTypes) -> Marked:
    """Return the state of `parts` with all numbers and times as they are, except matchtags."""
    walk = _MarkingWalk(payload_types)
    found = walk.parts(parts)
    return Marked(found, tuple(walk.matchtags), tuple(walk.lasts))


def digest_of(state: Normal) -> str:
    """Return a short text that is equal for equal normalised states."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def differences(one: Normal, other: Normal, where: str = "") -> list[str]:
    """Return where two normalised states differ, a line each: the place, then both values there."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        pairs = [(f"{where}.{name}", one.get(name), other.get(name)) for name in names]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(f"{where}[{n}]", *both) for n, both in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other else [f"{where.lstrip('.')}: {one!r:.200} != {other!r:.200}"]
    return [line for place, mine, its in pairs for line in differences(mine, its, place)]


class _Numbered(NamedTuple):
    """A number of one kind; `peer` is set if each peer has its own numbers."""

    kind: str
    value: float
    peer: str = ""


class _Moment(NamedTuple):
    """A time, in seconds since the Unix epoch."""

    value: float


class _Unordered(NamedTuple):
    """The items of a set, which are sorted when they have their places."""

    items: list[Any]


class _Beside(NamedTuple):
    """Says how to read a value: the peer of its message, or the key of a kvs value."""

    peer: str = ""
    key: str = ""


_NOWHERE: Final = _Beside()
_LEFT_OUT: Final = object()


class _Walk:
    """Goes through a state; keeps the numbers and times that it meets for `_Places`."""

    def __init__(self, payload_types: PayloadTypes) -> None:
        self._payload_types = payload_types
        self._seen: dict[int, int] | None = {}  # objects that can change; None for JSON
        self._kept: list[Any] = []  # so that no id() is used again meanwhile
        self.numbers: set[_Numbered] = set()
        self.times: set[float] = set()
        self.now = 0.0
        self.lasts: list[int] = []

    def parts(self, parts: Mapping[str, Part]) -> dict[str, Any]:
        """Return the state of each part that has one, by path."""
        return {
            path: self.attributes(
                {name: getattr(part, name) for name in part.state_names}, hints_of(part), _NOWHERE
            )
            for path, part in parts.items()
            if part.state_names
        }

    def value(self, value: Any, hint: Hint, beside: _Beside) -> Any:
        """Return `value`, with a _Numbered, a _Moment or an _Unordered in some places."""
        match value:
            case Enum():
                return ["enum", type(value).__qualname__, value.name or value.value]
            case None | bool():
                return value
            case int() | float() | str():
                return self._scalar(value, meaning_of(hint, value), beside)
            case bytes():
                return ["bytes", value.hex()]
            case array():
                meaning = meaning_of(hint, value)
                return ["array", *(self._scalar(each, meaning, beside) for each in value)]
        if type(value) in _COLLECTIONS:
            bare, meaning = resolve(hint, class_of(value), len(value))
            if meaning is Meaning.JSON:
                return self._fixed(lambda: self._collection(value, bare, beside))
            return self._collection(value, bare, beside)
        if isinstance(value, Request | Response | Event):
            return self._message(value)
        return self._object(value)

    def attributes(
        self, held: Mapping[Any, Any], hints: Mapping[str, Hint], beside: _Beside
    ) -> dict[str, Any]:
        """Return the values by name, each read by its own hint, without those that are left out."""
        found = {}
        for name, value in held.items():
            hint = hints.get(name, Any)
            match own_meaning(hint):
                case Meaning.FOR_PEOPLE:
                    walked = _LEFT_OUT
                case Meaning.DERIVED:
                    walked = value is not None
                case _:
                    walked = self.value(value, hint, beside)
            if walked is not _LEFT_OUT:
                found[str(name)] = walked
            beside = _next_to(beside, value, hints.get(name, Any))
        return found

    def _scalar(self, value: float | str, meaning: Any, beside: _Beside) -> Any:
        match meaning:
            case Number(kind) if isinstance(value, (int, float)):
                return self._number(kind, value, beside)
            case Meaning.TIME if isinstance(value, (int, float)):
                return self._time(value)
            case Meaning.USEC if isinstance(value, int):
                return self._usec(value)
            case Meaning.NOW if isinstance(value, (int, float)):
                self.now = value
                return _LEFT_OUT
            case Meaning.LAST if isinstance(value, int):
                self.lasts.append(value)
                return _LEFT_OUT
            case Meaning.KVS_KEY if isinstance(value, str):
                return self._key(value)
            case Meaning.KVS_TEXT if isinstance(value, str):
                return self._text(value, beside.key)
            case Meaning.EVENTLOG if isinstance(value, str):
                return self._eventlog(value)
        if isinstance(value, int) and value.bit_length() > 63:
            return ["int", hex(value)]  # a bit set of any length
        if isinstance(value, float) and not math.isfinite(value):
            return ["float", str(value)]
        return value

    def _number(self, kind: str, value: float, beside: _Beside = _NOWHERE) -> Any:
        if value == 0 or not math.isfinite(value):
            return [kind, str(value)]
        found = _Numbered(kind, value, beside.peer if kind == _MATCHTAG else "")
        self.numbers.add(found)
        return found

    def _time(self, value: float) -> Any:
        if value == 0 or not math.isfinite(value):
            return ["time", str(value)]
        self.times.add(value)
        return _Moment(value)

    def _usec(self, value: int) -> Any:
        return self._time(value / _US if value < _NO_USEC else math.inf)

    # Collections and objects

    def _collection(self, value: Any, hint: Hint, beside: _Beside) -> Any:
        kind = type(value).__name__
        same = self._seen_before(value) if not isinstance(value, (tuple, frozenset)) else None
        if same is not None:
            return same
        if isinstance(value, dict):
            return [kind, *self._pairs(value, hint, beside)]
        if isinstance(value, (set, frozenset)):
            (each,) = get_args(hint) or (Any,)
            return [kind, self._unordered(value, each, beside)]
        return [kind, *self._items(value, item_hints(hint, len(value)), beside)]

    def _unordered(self, items: Iterable[Any], hint: Hint, beside: _Beside) -> Any:
        return _Unordered([self.value(item, hint, beside) for item in items])

    def _pairs(self, value: Mapping[Any, Any], hint: Hint, beside: _Beside) -> Iterable[Any]:
        if isinstance(hint, Keys) or is_typeddict(hint):
            named = types_by_key(hint.shape if isinstance(hint, Keys) else hint)
            for key, held in value.items():
                yield [key, self.value(held, named.get(key, Any), beside)]
            return
        of_key, of_value = (*get_args(hint), Any, Any)[:2]
        if origin_of(hint) is Counter:
            of_value = int
        for key, held in value.items():
            below = _next_to(beside, key, of_key)
            yield [self.value(key, of_key, beside), self.value(held, of_value, below)]

    def _items(self, value: Iterable[Any], hints: Iterable[Hint], beside: _Beside) -> list[Any]:
        found = []
        for item, hint in zip(value, hints, strict=True):
            found.append(self.value(item, hint, beside))
            beside = _next_to(beside, item, hint)
        return found

    def _object(self, value: Any, beside: _Beside = _NOWHERE) -> Any:
        same = self._seen_before(value) if not is_value(class_of(value)) else None
        if same is not None:
            return same
        kind, held = contents_of(value)
        hints = hints_of(value)
        name = type(value).__qualname__
        if kind == "tuple":
            held = dict(zip(value._fields, held, strict=True))
        elif kind == "state":
            return [name, self.value(held, state_hint(class_of(value)), _NOWHERE)]
        return [name, self.attributes(held, hints, beside)]

    def _seen_before(self, value: Any) -> Any:
        if self._seen is None:
            return None
        if (number := self._seen.get(id(value))) is not None:
            return ["same", number]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return None

    def _message(self, message: Request | Response | Event) -> Any:
        """Return a message that waits. A payload that was sent never changes, so it is a value."""
        held = {name: getattr(message, name) for name in message.__struct_fields__}
        kind = type(message)
        match self._payload_types.get(message.topic if kind is Request else (kind, message.topic)):
            case None:
                pass
            case Codec(read=read):
                with suppress(FluxError, FormatError):
                    held["payload"] = read(message)
            case wanted:
                with suppress(msgspec.ValidationError):
                    held["payload"] = msgspec.convert(held["payload"], wanted)
        peer = "" if isinstance(message, Event) or not message.routes else message.routes[0]
        beside, hints = _Beside(peer=peer), hints_of(message)
        payload = held.pop("payload")

        def walk() -> Any:
            found = self.attributes(held, hints, beside)
            if isinstance(payload, msgspec.Struct):
                found["payload"] = self._object(payload, beside)
            else:
                found["payload"] = self.value(payload, hints["payload"], beside)
            return found

        return [kind.__name__, self._fixed(walk)]

    def _fixed(self, walk: Callable[[], Any]) -> Any:
        """Return the result of `walk`, which goes through values that cannot change."""
        seen, self._seen = self._seen, None
        found = walk()
        self._seen = seen
        return found

    # Texts

    def _key(self, key: str) -> Any:
        found = _ID_KEY.fullmatch(key)
        if found is None:
            return key
        if found["dothex"]:
            jobid = self._number(_JOB, int(found["dothex"].replace(".", ""), 16))
            return ["key", "job", jobid, found["rest"] or ""]
        if found["active"]:
            return ["key", ACTIVE, self._number(_JOB, int(found["active"], 16))]
        ended_at = self._usec(int(found["usec"], 16))
        return ["key", ENDED, ended_at, self._number(_JOB, int(found["ended"], 16))]

    def _text(self, text: str, key: str) -> Any:
        """Return a value of the kvs.

        Eventlogs (RFC 18) and R (RFC 20) have times in them; `max-jobid` is the id of a job.
        """
        if key.endswith(".eventlog"):
            return self._eventlog(text)
        if key.endswith(".max-jobid") and text.isdecimal():
            return self._number(_JOB, int(text))
        if key.endswith(".R"):
            with suppress(msgspec.MsgspecError):
                resources = msgspec.json.decode(text, type=_R)
                times = resources.execution.starttime, resources.execution.expiration
                rest = _R_TIMES.sub(r"\1", text)
                return ["R", *map(self._time, times), rest]
        return text

    def _eventlog(self, text: str) -> Any:
        """Return the lines of an eventlog; the text after the last whole line is kept as it is."""
        end = text.rfind("\n") + 1
        try:
            events = parse_eventlog(text[:end])
        except FormatError:
            return text
        return ["eventlog", *map(self._event, events), text[end:]]

    def _event(self, event: Any) -> Any:
        stamp = self._number(_STAMP, event.timestamp)
        return [stamp, event.name, self.value(event.context, Any, _NOWHERE)]


class _MarkingWalk(_Walk):
    """Leaves all numbers and times as they are, except matchtags, which it collects."""

    def __init__(self, payload_types: PayloadTypes) -> None:
        super().__init__(payload_types)
        self.matchtags: list[tuple[str, int]] = []

    def _number(self, kind: str, value: float, beside: _Beside = _NOWHERE) -> Any:
        if kind != _MATCHTAG or value == 0 or not math.isfinite(value):
            return [kind, str(value)]
        self.matchtags.append((beside.peer, int(value)))
        return [kind]

    def _time(self, value: float) -> Any:
        return ["time", str(value)]

    def _unordered(self, items: Iterable[Any], hint: Hint, beside: _Beside) -> Any:
        is_plain = set(map(type, items)) in ({int}, {str})
        ordered = sorted(items, key=None if is_plain else repr)
        return [self.value(item, hint, beside) for item in ordered]


class _Execution(msgspec.Struct):
    starttime: float = 0.0
    expiration: float = 0.0


class _R(msgspec.Struct):
    execution: _Execution


_R_TIMES: Final = re.compile(r'("(?:starttime|expiration)"\s*:\s*)[0-9.eE+]+')


class _Places:
    """Puts places where `_Walk` left numbers and times."""

    def __init__(self, numbers: set[_Numbered], times: set[float], now: float) -> None:
        ranks: Counter[tuple[str, str]] = Counter()
        self._ranks: dict[_Numbered, int] = {}
        for number in sorted(numbers):
            ranks[number.kind, number.peer] += 1
            self._ranks[number] = ranks[number.kind, number.peer]
        close: Counter[float] = Counter()
        self._times: dict[float, list[Any]] = {}
        for time in sorted(times):
            distance = round(time - now, TIME_DIGITS) + 0.0  # not -0.0
            nth = close[distance]
            close[distance] += 1
            self._times[time] = ["time", distance, nth] if nth else ["time", distance]

    def settle(self, tree: Any) -> Normal:
        """Return `tree` with a place for each number and time, and sets in order."""
        match tree:
            case _Numbered(kind):
                return [kind, self._ranks[tree]]
            case _Moment(time):
                return self._times[time]
            case _Unordered(items):
                return sorted((self.settle(item) for item in items), key=json.dumps)
            case list():
                return [self.settle(item) for item in tree]
            case dict():
                return {name: self.settle(item) for name, item in tree.items()}
        return tree


def _next_to(beside: _Beside, value: Any, hint: Hint) -> _Beside:
    """Return the `_Beside` of the values after or below `value`."""
    if isinstance(value, str):
        match meaning_of(hint, value):
            case Meaning.PEER:
                return beside._replace(peer=value)
            case Meaning.KVS_KEY:
                return beside._replace(key=value)
    return beside
