"""Cores that remember their turns: what a core does depends on its state, the time and its inputs.

A `Machine` has one core of each kind of party and keeps the states that it has been in, by number.
A turn that one of these states has had already is not computed again.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from flux_trio.cores.fingerprint import digest_of, marked
from flux_trio.cores.methods import Methods
from flux_trio.cores.state import CorePart, parts_of
from flux_trio.cores.turns import Core, TimerFired
from flux_trio.faults.disk import KvsOnDisk
from flux_trio.store.stores import MemoryStore

DIGEST_BYTES: Final = 16
_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
_decode = msgspec.msgpack.decode


class Mark(NamedTuple):
    """What tells the state of a core from others, without the matchtags in it.

    `matchtags` has, by their places in the state, the sender ("" for the core itself) and the
    matchtag. `lasts` says how far the core's own numberings have got.
    """

    digest: bytes
    matchtags: tuple[tuple[str, int], ...]
    lasts: tuple[int, ...]


class Keeper(Protocol):
    """How the state of a kind of core is written, taken up again and told from others."""

    def write(self, core: Any) -> bytes:
        """Return the state of `core`."""

    def load(self, core: Any, state: bytes) -> None:
        """Give `core` the state."""

    def mark(self, core: Any, state: bytes) -> Mark:
        """Return the mark of the state that `core` is in."""


class OfModule:
    """The keeper of a module's core; what `Methods` counts for statistics decides nothing."""

    def write(self, core: Any) -> bytes:
        return _encode(core.dump())

    def load(self, core: Any, state: bytes) -> None:
        part_of(core).load(_decode(state))

    def mark(self, core: Any, state: bytes) -> Mark:  # noqa: ARG002 - the interface
        part = part_of(core)
        deciding = {
            path: each for path, each in parts_of(part).items() if type(each) is not Methods
        }
        found = marked(deciding, part.payload_types)
        return Mark(bytes.fromhex(digest_of(found.state)), found.matchtags, found.lasts)


class OfKvs(OfModule):
    """The keeper of the kvs, whose state has what is stored."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def write(self, core: KvsOnDisk) -> bytes:
        return _encode((self._store.put_down(), core.dump()))

    def load(self, core: KvsOnDisk, state: bytes) -> None:
        values, dump = _decode(state)
        self._store.take_up(values)
        core.part.load(dump)

    def mark(self, core: KvsOnDisk, state: bytes) -> Mark:
        mark = super().mark(core, state)
        return mark._replace(digest=digest(mark.digest + _encode(self._store.put_down())))


class OfClient:
    """The keeper of a client: a small object whose attributes are plain values."""

    def write(self, core: Any) -> bytes:
        return pickle.dumps(vars(core))

    def load(self, core: Any, state: bytes) -> None:
        vars(core).update(pickle.loads(state))

    def mark(self, core: Any, state: bytes) -> Mark:  # noqa: ARG002 - the interface
        return Mark(digest(state), (), ())


def part_of(core: Any) -> CorePart:
    """Return the core that has the state, of a module of a world."""
    return core if isinstance(core, CorePart) else core.part


def digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


class Machine:
    """The core of one kind of party, the states that it was in, and its turns in them."""

    def __init__(self, make: Callable[[], Core[Any, Any]], keeper: Keeper) -> None:
        self._make = make
        self._keeper = keeper
        self._core = make()
        self._at = -1  # the state that the core is in
        self._states: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._turns: dict[tuple[Any, ...], tuple[int, list[Any]]] = {}
        self.marks: list[Mark] = []

    def start(self, now: float) -> tuple[int, list[Any]]:
        """Start another core; return its state and its actions."""
        self._core = self._make()
        actions = self._core.start(now)
        return self._keep(), actions

    def turn(self, state: int, now: float, inputs: list[Any]) -> tuple[int, list[Any]]:
        """Return the state and the actions after a turn."""
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
        """Return the core, in this state, until the next call."""
        if self._at != state:
            self._keeper.load(self._core, self._states[state])
            self._at = state
        return self._core

    def _keep(self) -> int:
        """Return the number of the state that the core is in."""
        text = self._keeper.write(self._core)
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._states)
            self._states.append(text)
            self.marks.append(self._keeper.mark(self._core, text))
        self._at = number
        return number


def _key_of(item: Any) -> Any:
    if isinstance(item, TimerFired):
        return item
    return (type(item), _encode(item))


class Remembered:
    """A core whose state is the number of one of its machine's; see `Core`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.state = -1

    def start(self, now: float) -> list[Any]:
        self.state, actions = self.machine.start(now)
        return actions

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        self.state, actions = self.machine.turn(self.state, now, inputs)
        return actions

    def dump(self) -> Any:
        """Return the state, as plain data."""
        return self.machine.core_in(self.state).dump()
