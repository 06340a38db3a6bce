"""A turn of a core as data of a trace's record: what the core was given, and what it did. Pure.

With these records a core can be replayed. An input that is a message is written as the place where
it was sent: the trace has its receipt just before. Any other input is written as plain data
(`plain.py`). An action that is a message or a note has a record of its own, which follows. Any
other action is one line of text, without the environments of jobs; of a long action the line has
only a checksum, since a replayed core shows the action in full. The answers of plugins within the
turn are in `recorded_plugins.py`.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.cores.plain import Plain, Reader, StateError, Writer, class_named, name_of
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import Note, NoteAll, TimerFired
from flux_trio.editions import EDITIONS, Edition
from flux_trio.messages import Event, Message, Request, Response
from flux_trio.trace.secrets import action_without_environments

BYTES_MAX: Final = 100
"""Bytes of an action as JSON; of a longer one, a checksum is written."""

Refs: TypeAlias = Mapping[int, int]
"""The places where messages were sent, by `id` of the message."""

_CORES: Final = "flux_trio.cores."
TRACED: Final = frozenset((Request, Response, Event, Note, NoteAll))
"""The actions that have records of their own."""

_TIMER: Final = "timer"
_MESSAGE: Final = "message"
_SHAPES: Final = {each.__name__: each for each in (Request, Response, Event)}

_encode = msgspec.json.Encoder(
    order="deterministic", enc_hook=lambda value: Writer().write(value, "action")
).encode


class Turn(msgspec.Struct):
    """The data of a record; `core` and the fields after it are in the record of a core's start.

    `now` is the time that the core was given, in seconds since the Unix epoch. `said` has the
    answers of plugins, `asked` the checksum of the questions to them.
    """

    now: float
    inputs: list[Any] = []
    actions: list[str] = []
    raised: str = ""
    said: list[Any] = []
    asked: int | None = None
    core: str = ""  # the name of its class
    args: Any = None
    state: dict[str, Any] = {}  # before its start
    version: str = ""  # of flux-trio


def read_turn(data: dict[str, Any] | None) -> Turn:
    """Return the data of a record. Raises StateError."""
    try:
        return msgspec.convert(data, Turn)
    except msgspec.ValidationError as error:
        raise StateError(str(error)) from None


# --- how a core is made


def written_making(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Plain]:
    """Return how `cls(*args, **kwargs)` is made. An edition must be the argument `edition`."""
    named = {
        name: value.name if isinstance(value, Edition) else value for name, value in kwargs.items()
    }
    where = f"arguments of {cls.__qualname__}"
    return {"core": name_of(cls), "args": Writer().write((tuple(args), named), where)}


def made_core(name: str, written: Plain) -> CorePart:
    """Return the core that `written_making` describes.

    Raises StateError if this version has no such core, or its constructor does not take the
    arguments. What the constructor raises is raised as it is.
    """
    cls = class_named(name)
    if not (name.startswith(_CORES) and issubclass(cls, CorePart)):
        raise StateError(f"expected a core of {_CORES}, got {name}")
    args, kwargs = _read_arguments(name, written)
    try:
        inspect.signature(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise StateError(f"arguments of {name}: {error}") from None
    core: CorePart = cls(*args, **kwargs)
    return core


def _read_arguments(name: str, written: Plain) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match Reader().read(written):
        case (tuple(args), dict(kwargs)) if all(isinstance(each, str) for each in kwargs):
            if "edition" in kwargs:
                kwargs["edition"] = _edition_named(kwargs["edition"])
            return args, kwargs
    raise StateError(f"expected arguments of {name}, got {written!r:.100}")


def _edition_named(name: Any) -> Edition:
    if isinstance(name, str) and name in EDITIONS:
        return EDITIONS[name]
    raise StateError(f"expected an edition of this version, got {name!r:.100}")


# --- inputs


def written_inputs(inputs: Iterable[Any], refs: Refs) -> list[Plain]:
    """Return the inputs of a turn."""
    return [
        ref if (ref := refs.get(id(each))) is not None else _written_input(each) for each in inputs
    ]


def _written_input(value: Any) -> Plain:
    if type(value) is TimerFired:
        return _written_timer(value.key)
    if isinstance(value, (Request, Response, Event)):
        return [_MESSAGE, type(value).__name__, value]
    return Writer().write(value, "input")


def _written_timer(key: Any) -> Plain:
    """Return a timer that is due: the class and the items of a NamedTuple, else plain data.

    Most keys are NamedTuples. JSON writes an enum in them as its value, which takes less time than
    to write it as an object.
    """
    if isinstance(key, tuple) and type(key) is not tuple:
        return [_TIMER, name_of(type(key)), key]
    return [_TIMER, Writer().write(key, "key")]


def read_inputs(written: Iterable[Plain], message_at: Callable[[int], Message]) -> list[Any]:
    """Return the inputs; `message_at` finds a message by the place where it was sent.

    Raises StateError for what `written_inputs` does not write.
    """
    return [_read_input(each, message_at) for each in written]


def _read_input(written: Plain, message_at: Callable[[int], Message]) -> Any:
    match written:
        case int():
            return message_at(written)
        case [str(tag), key] if tag == _TIMER:
            return TimerFired(Reader().read(key))
        case [str(tag), str(name), items] if tag == _TIMER:
            return TimerFired(_read_key(name, items))
        case [str(tag), str(shape), fields] if tag == _MESSAGE and shape in _SHAPES:
            try:
                return msgspec.convert(fields, _SHAPES[shape])
            except msgspec.ValidationError as error:
                raise StateError(f"an input: {error}") from None
    return Reader().read(written)


def _read_key(name: str, items: Plain) -> Any:
    cls = class_named(name)
    if not issubclass(cls, tuple):
        raise StateError(f"expected the class of a timer's key, got {name!r}")
    try:
        return msgspec.convert(items, cls)
    except (msgspec.ValidationError, TypeError) as error:
        raise StateError(f"the key of a timer: {error}") from None


# --- actions


def written_actions(actions: Iterable[Any]) -> list[str]:
    """Return a line for each action that has no record of its own."""
    return [_line(each) for each in actions if type(each) not in TRACED]


def action_text(action: Any) -> str:
    """Return an action in full, as text."""
    return f"{type(action).__name__} {_encode(action).decode()}"


def _line(action: Any) -> str:
    encoded = action_without_environments(_encode(action))
    if len(encoded) <= BYTES_MAX:
        return f"{type(action).__name__} {encoded.decode()}"
    return f"{type(action).__name__} of {len(encoded)} bytes, checksum {zlib.crc32(encoded):08x}"


def raised_text(error: BaseException | None) -> str:
    """Return what a core has raised in a turn."""
    return f"{type(error).__name__}: {error}"
