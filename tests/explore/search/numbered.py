"""Cores that remember their turns: what a core does depends on its state, the time and its inputs.

A `Machine` has one core of each kind of party and keeps the states that it has been in, by number.
A turn that one of these states has had already is not computed again.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from flux_trio.cores.methods import Methods
from flux_trio.cores.state import CorePart, Part, parts_of
from flux_trio.cores.turns import Core, TimerFired
from flux_trio.lab.world.disk import KvsOnDisk
from flux_trio.store.stores import MemoryStore
from tests.support.fingerprint import marked
from tests.support.payload_types import PayloadTypes, payload_types

DIGEST_BYTES: Final = 16
_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
_encode_in_order = msgspec.msgpack.Encoder(order="deterministic").encode


class Mark(NamedTuple):
    """The digest of a core's state, without the matchtags in it, and these matchtags.

    `matchtags` has them in the order in which they stand in the state: the sender ("" for the core
    itself) and the matchtag. `lasts` says how far the core's own numberings have got.
    """

    digest: bytes
    matchtags: tuple[tuple[str, int], ...]
    lasts: tuple[int, ...]


class StateFormat(Protocol):
    """How the state of a kind of core is written, loaded again and compared with others."""

    def write(self, core: Any) -> bytes:
        """Return the state of `core` as bytes."""

    def load(self, core: Any, state: bytes) -> None:
        """Replace the state of `core` by one that `write` has returned."""

    def mark(self, core: Any, state: bytes) -> Mark:
        """Return the mark of the present state of `core`."""


class OfModule:
    """Writes, loads and compares the states of a module's core (see `StateFormat`).

    Of the parts of the core, what `Methods` counts for statistics decides nothing. A part that was
    marked before with the same state is not looked into again.
    """

    def __init__(self) -> None:
        self._core: CorePart | None = None
        self._parts: dict[str, Part] = {}
        self._marks: dict[bytes, Mark] = {}

    def write(self, core: Any) -> bytes:
        return _pickled([_values_of(part) for part in self._parts_of(core).values()])

    def load(self, core: Any, state: bytes) -> None:
        parts = self._parts_of(core).values()
        for part, values in zip(parts, pickle.loads(state), strict=True):
            for name, value in zip(part.state_names, values, strict=True):
                setattr(part, name, value)
        for part in parts:
            part.taken_up()

    def mark(self, core: Any, state: bytes) -> Mark:
        types = payload_types(part_of(core))
        found = [
            self._mark_of(path, part, types)
            for path, part in self._parts_of(core).items()
            if type(part) is not Methods
        ]
        return Mark(
            digest(b"".join([each.digest for each in found])),
            tuple([tag for each in found for tag in each.matchtags]),
            tuple([last for each in found for last in each.lasts]),
        )

    def _mark_of(self, path: str, part: Part, types: PayloadTypes) -> Mark:
        text = _pickled((path, _values_of(part)))
        mark = self._marks.get(text)
        if mark is None:
            found = marked({path: part}, types)
            state = digest(_encode_in_order(found.state))
            mark = self._marks[text] = Mark(state, found.matchtags, found.lasts)
        return mark

    def _parts_of(self, core: Any) -> dict[str, Part]:
        """Return the parts that have a state: what a core is wired to does not change."""
        part = part_of(core)
        if part is not self._core:
            self._core = part
            self._parts = {path: each for path, each in parts_of(part).items() if each.state_names}
        return self._parts


class OfKvs(OfModule):
    """Writes, loads and compares the states of the kvs, which include what is stored (see
    `StateFormat`)."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._store = store

    def write(self, core: KvsOnDisk) -> bytes:
        return _pickled((self._store.put_down(), super().write(core)))

    def load(self, core: KvsOnDisk, state: bytes) -> None:
        values, parts = pickle.loads(state)
        self._store.take_up(values)
        super().load(core, parts)

    def mark(self, core: KvsOnDisk, state: bytes) -> Mark:
        mark = super().mark(core, state)
        return mark._replace(digest=digest(mark.digest + _encode(self._store.put_down())))


class OfClient:
    """Writes, loads and compares the states of a client, a small object whose attributes are plain
    values (see `StateFormat`)."""

    def write(self, core: Any) -> bytes:
        return _pickled(vars(core))

    def load(self, core: Any, state: bytes) -> None:
        vars(core).update(pickle.loads(state))

    def mark(self, core: Any, state: bytes) -> Mark:
        return Mark(digest(state), (), ())


def part_of(core: Any) -> CorePart:
    """Return the core of a module without what a world has around it."""
    return core if isinstance(core, CorePart) else core.part


def _values_of(part: Part) -> list[Any]:
    return [getattr(part, name) for name in part.state_names]


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


class Machine:
    """The core of one kind of party, with the states that it has been in and the turns that it has
    taken in them."""

    def __init__(self, make: Callable[[], Core[Any, Any, Any]], form: StateFormat) -> None:
        self._make = make
        self._keeper = form
        self._core = make()
        self._at = -1  # the state that the core is in
        self._states: list[bytes] = []
        self._numbers: dict[bytes, int] = {}  # by the digest of a state
        self._numbers_of_marks: dict[Mark, int] = {}
        self._turns: dict[tuple[Any, ...], tuple[int, Sequence[Any]]] = {}
        self.marks: list[Mark] = []

    def start(self, now: float) -> tuple[int, Sequence[Any]]:
        """Start a new core; return the number of its state, and its actions."""
        self._core = self._make()
        actions = self._core.start(now)
        return self._keep(), actions

    def turn(self, state: int, now: float, inputs: Sequence[Any]) -> tuple[int, Sequence[Any]]:
        """Return the number of the state after a turn, and the actions of the turn."""
        key = (state, now, *map(_key_of, inputs))
        found = self._turns.get(key)
        if found is None:
            if self._at != state:
                self._keeper.load(self._core, self._states[state])
            self._at = -1  # if the turn raises, nobody knows
            actions = self._core.turn(now, inputs)
            found = self._turns[key] = (self._keep(), actions)
        return found

    def core_in(self, state: int) -> Any:
        """Return the machine's core in this state; the next call may give it another state."""
        if self._at != state:
            self._keeper.load(self._core, self._states[state])
            self._at = state
        return self._core

    def _keep(self) -> int:
        """Return the number of the state that the core is in."""
        text = self._keeper.write(self._core)
        name = digest(text)
        number = self._numbers.get(name)
        if number is not None:
            self._at = number
            return number
        mark = self._keeper.mark(self._core, text)
        number = self._numbers_of_marks.setdefault(mark, len(self.marks))
        self._numbers[name] = number
        if number == len(self.marks):
            self._states.append(text)
            self.marks.append(mark)
            self._at = number
        return number


def _key_of(item: Any) -> Any:
    if isinstance(item, TimerFired):
        return item
    return (type(item), _encode(item))


class NumberedCore:
    """A core whose state is a number in its `Machine`; it takes turns as a `Core` does."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.state = -1

    def start(self, now: float) -> Sequence[Any]:
        self.state, actions = self.machine.start(now)
        return actions

    def turn(self, now: float, inputs: Sequence[Any]) -> Sequence[Any]:
        self.state, actions = self.machine.turn(self.state, now, inputs)
        return actions

    def dump(self) -> Any:
        """Return the state of the core as plain data."""
        return self.machine.core_in(self.state).dump()
