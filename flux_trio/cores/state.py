"""Putting a core down and taking it up: its state as plain data, and back. Pure.

A core is made of parts. The state of a part is the attributes that its class annotates. Its wiring
(other parts, functions of them, the configuration) is the attributes that only its constructor
sets:

    class Grantings(Part):
        by_id: dict[int, Granting]       # state: dumped and loaded

        def __init__(self, outbox: SchedOutbox) -> None:
            self._outbox = outbox        # wiring: the constructor of the next one makes it
            self.by_id = {}

State is data: numbers, strings, enums, bytes, lists, tuples, arrays, sets, dictionaries, and
objects of this package's classes that hold such data. `put_down` refuses functions, bound methods,
iterators and parts. Attributes that an object's `__getstate__` leaves out are not dumped; its
`__setstate__` computes them again.

An object that is held in two places is one object after `take_up`, too. Sets are written in order,
so that two equal states have equal dumps; nothing may depend on the order of a set.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, ClassVar

from flux_trio.cores.plain import NotData, Plain, Reader, StateError, Writer

__all__ = ["CorePart", "Part", "Plain", "StateError", "parts_of", "put_down", "take_up"]


def _is_constant(annotation: Any) -> bool:
    text = annotation if isinstance(annotation, str) else str(annotation)
    return "ClassVar" in text or "Final" in text


class Part(NotData):
    """A piece of a core: see this module's text."""

    state_names: ClassVar[tuple[str, ...]] = ()

    def taken_up(self) -> None:
        """Compute again what follows from the state; called when all parts have their state."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = [name for name, kind in cls.__annotations__.items() if not _is_constant(kind)]
        cls.state_names = (*cls.state_names, *own)


class CorePart(Part):
    """The part that is a whole core: what the runner needs of it is `turns.Core`."""

    def dump(self) -> Plain:
        """Return the state of the whole core as plain data: see `put_down`."""
        return put_down(self)

    def load(self, data: Plain) -> None:
        """Take the state that `dump` of a core with the same arguments gave; see `take_up`."""
        take_up(self, data)


def parts_of(core: Part) -> dict[str, Part]:
    """Return `core` and every part that it is wired to, by the path of attributes to it."""
    found = {"core": core}
    seen = {id(core)}
    waiting = [("core", core)]
    for path, part in waiting:
        for name, value in vars(part).items():
            if isinstance(value, Part) and id(value) not in seen and name not in part.state_names:
                seen.add(id(value))
                place = f"{path}.{name}"
                found[place] = value
                waiting.append((place, value))
    return found


def put_down(core: Part) -> Plain:
    """Return the state of all parts of `core`. Raises StateError for a value that is not data."""
    writer = Writer()
    return {
        path: {
            name: writer.write(getattr(part, name), f"{path}.{name}") for name in part.state_names
        }
        for path, part in parts_of(core).items()
        if part.state_names
    }


def take_up(core: Part, data: Plain) -> None:
    """Give the parts of `core` the state in `data`; `core` was made as its predecessor was.

    Raises StateError for data that `put_down` of such a core cannot have written.
    """
    reader = Reader()
    parts = {path: part for path, part in parts_of(core).items() if part.state_names}
    _check_names("the state", "core", parts.keys(), data)
    for path, part in parts.items():
        held = data[path]
        _check_names(f"the state of {path}", "part", set(part.state_names), held)
        for name in part.state_names:
            setattr(part, name, reader.read(held[name]))
    for part in parts.values():
        part.taken_up()


def _check_names(of: str, owner: str, expected: Set[str], held: Plain) -> None:
    """Raise StateError if `held` has another form, or other names than the `owner` of the state."""
    if not isinstance(held, dict):
        raise StateError(f"expected {of} as an object, got {held!r:.100}")
    if held.keys() == expected:
        return
    said = []
    if missing := sorted(expected - held.keys()):
        said.append(f"lacks {', '.join(missing)}")
    if too_many := sorted(held.keys() - expected):
        said.append(f"has {', '.join(too_many)}, which the {owner} does not have")
    raise StateError(f"{of} {' and '.join(said)}")
