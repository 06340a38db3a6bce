"""Putting a core down and taking it up: its state as plain data, and back. Pure.

A core is made of parts. A part's state is what its class annotates; its wiring (other parts,
functions of them, the configuration) is what only its constructor sets:

    class Grantings(Part):
        by_id: dict[int, Granting]       # state: dumped and loaded

        def __init__(self, outbox: SchedOutbox) -> None:
            self._outbox = outbox        # wiring: the constructor of the next one makes it
            self.by_id = {}

State is data: numbers, strings, enums, bytes, lists, tuples, arrays, sets, dictionaries, and
objects of this package's classes that hold such data. `put_down` refuses functions, bound methods,
iterators and parts. What `__getstate__` of an object leaves out is not dumped; a class that leaves
out what it can compute again says so there, and in `__setstate__`.

An object that is held in two places is one object after `take_up`, too. Sets are written in order,
so that two equal states have equal dumps; nothing may depend on the order of a set.
"""

from __future__ import annotations

import base64
import importlib
import math
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from flux_trio.cores.contents import contents_of
from flux_trio.cores.fingerprint import Normal, digest_of, normalised

Plain: TypeAlias = Any
"""What JSON can hold: None, bool, int below 2**63, finite float, str, and lists of these."""

_INT_MAX: Final = 2**63 - 1
_PACKAGE: Final = "flux_trio"

_COLLECTIONS: Final[dict[type, str]] = {
    list: "list",
    deque: "deque",
    set: "set",
    dict: "dict",
    OrderedDict: "ordered",
    Counter: "counter",
}
_MAKERS: Final[dict[str, Callable[[], Any]]] = {tag: made for made, tag in _COLLECTIONS.items()}


class StateError(Exception):
    """State that is no data, or data that is no state; says where it is."""


def _is_constant(annotation: Any) -> bool:
    text = annotation if isinstance(annotation, str) else str(annotation)
    return "ClassVar" in text or "Final" in text


class Part:
    """A piece of a core: see this module's text."""

    state_names: ClassVar[tuple[str, ...]] = ()

    def taken_up(self) -> None:
        """Make anew what is computed from the state; called when all parts have theirs."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = [name for name, kind in cls.__annotations__.items() if not _is_constant(kind)]
        cls.state_names = (*cls.state_names, *own)


class CorePart(Part):
    """The part that is a whole core: what the runner needs of it is `turns.Core`."""

    payload_types: ClassVar[Mapping[str, Any]] = {}
    """By topic, as what the core reads the payload of a request that its state may hold."""

    def dump(self) -> Plain:
        """The state of the whole core as plain data: see `put_down`."""
        return put_down(self)

    def load(self, data: Plain) -> None:
        """Take the state that `dump` of a core made alike has given; see `take_up`."""
        take_up(self, data)

    def normalised(self) -> Normal:
        """The state without how jobs, matchtags and times are numbered: see `fingerprint.py`."""
        return normalised(parts_of(self), self.payload_types)

    def fingerprint(self) -> str:
        """Equal for two cores whose `normalised` states are."""
        return digest_of(self.normalised())


def parts_of(core: Part) -> dict[str, Part]:
    """`core` and every part that it is wired to, by the path of attributes that leads there."""
    found: dict[str, Part] = {}
    seen: set[int] = set()
    waiting = deque([("core", core)])
    while waiting:
        path, part = waiting.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        found[path] = part
        for name, value in vars(part).items():
            if isinstance(value, Part) and name not in part.state_names:
                waiting.append((f"{path}.{name}", value))
    return found


def put_down(core: Part) -> Plain:
    """The state of all parts of `core`. Raises StateError where one holds what is no data."""
    writer = _Writer()
    return {
        path: {
            name: writer.write(getattr(part, name), f"{path}.{name}") for name in part.state_names
        }
        for path, part in parts_of(core).items()
        if part.state_names
    }


def take_up(core: Part, data: Plain) -> None:
    """Give the parts of `core`, which was made as its predecessor was, the state in `data`.

    Raises StateError for what `put_down` of such a core cannot have written.
    """
    reader = _Reader()
    parts = {path: part for path, part in parts_of(core).items() if part.state_names}
    if parts.keys() != data.keys():
        raise StateError(f"expected state of {sorted(parts)}, got that of {sorted(data)}")
    for path, part in parts.items():
        for name in part.state_names:
            setattr(part, name, reader.read(data[path][name]))
    for part in parts.values():
        part.taken_up()


class _Writer:
    """Writes values; the objects that it has written once are referred to by number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used again while this writes

    def write(self, value: Any, where: str) -> Plain:
        """`value` as plain data; `where` says in an error whose value it is."""
        match value:
            case None | bool() | str() if type(value) in (type(None), bool, str):
                return value
            case Enum():
                return ["enum", _name_of(type(value)), value.value]
            case int() if type(value) is int:
                return value if -_INT_MAX <= value <= _INT_MAX else ["int", hex(value)]
            case float() if type(value) is float:
                return value if math.isfinite(value) else ["float", str(value)]
            case bytes():
                return ["bytes", base64.b85encode(value).decode()]
            case frozenset():
                return ["frozenset", self._sorted(value, where)]
            case tuple() if type(value) is tuple:
                return ["tuple", [self.write(each, where) for each in value]]
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> Plain:
        number = self._numbers.get(id(value))
        if number is not None:
            return ["same", number]
        number = self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        tag = _COLLECTIONS.get(type(value))
        if isinstance(value, array):
            return ["array", number, value.typecode, value.tolist()]
        if tag is None:
            return ["object", number, _name_of(_class_of(value, where)), *self._held(value, where)]
        if isinstance(value, dict):
            items = [
                [self.write(key, where), self.write(held, f"{where}[{key!r}]")]
                for key, held in value.items()
            ]
            return [tag, number, items]
        if isinstance(value, set):
            return [tag, number, self._sorted(value, where)]
        items = [self.write(each, f"{where}[]") for each in value]
        if isinstance(value, deque) and value.maxlen is not None:
            return [tag, number, items, value.maxlen]
        return [tag, number, items]

    def _held(self, value: Any, where: str) -> list[Plain]:
        kind, held = contents_of(value)
        if kind == "attributes":
            return [kind, [[k, self.write(v, f"{where}.{k}")] for k, v in held.items()]]
        if kind == "tuple":
            return [kind, [self.write(each, where) for each in held]]
        return [kind, self.write(held, where)]

    def _sorted(self, values: Any, where: str) -> list[Plain]:
        return sorted((self.write(each, where) for each in values), key=repr)


class _Reader:
    """Reads what one `_Writer` has written."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}

    def read(self, data: Plain) -> Any:
        """The value that `data` is."""
        if not isinstance(data, list):
            return data
        match data:
            case ["enum", str(name), member]:
                return _class_named(name)(member)
            case ["int", str(text)]:
                return int(text, 16)
            case ["float", str(text)]:
                return float(text)
            case ["bytes", str(text)]:
                return base64.b85decode(text)
            case ["frozenset", list(items)]:
                return frozenset(self.read(each) for each in items)
            case ["tuple", list(items)]:
                return tuple(self.read(each) for each in items)
            case ["same", int(number)]:
                return self._objects[number]
            case ["array", int(number), str(typecode), list(items)]:
                made = self._objects[number] = array(typecode, items)
                return made
            case ["object", int(number), str(name), str(kind), content]:
                return self._object(number, _class_named(name), kind, content)
            case [str(tag), int(number), list(items), *bound] if tag in _MAKERS:
                made = deque(maxlen=bound[0]) if bound else _MAKERS[tag]()
                return self._collection(number, made, items)
        raise StateError(f"expected a value as put_down writes it, got {data!r:.100}")

    def _collection(self, number: int, made: Any, items: list[Plain]) -> Any:
        self._objects[number] = made
        if isinstance(made, dict):
            for key, value in items:
                made[self.read(key)] = self.read(value)
        elif isinstance(made, set):
            made.update(self.read(each) for each in items)
        else:
            made.extend(self.read(each) for each in items)
        return made

    def _object(self, number: int, cls: Any, kind: str, content: Any) -> Any:
        if kind == "tuple":
            made = cls._make(self.read(each) for each in content)
            self._objects[number] = made
            return made
        if issubclass(cls, msgspec.Struct):
            made = cls(**{name: self.read(value) for name, value in content})
            self._objects[number] = made
            return made
        made = cls.__new__(cls)
        self._objects[number] = made
        if kind == "state":
            made.__setstate__(self.read(content))
            return made
        for name, value in content:
            object.__setattr__(made, name, self.read(value))  # of a frozen object, too
        return made


def _class_of(value: Any, where: str) -> type:
    cls = type(value)
    is_code = callable(value) or isinstance(value, (Iterator, ModuleType, Part, type))
    if is_code or not cls.__module__.split(".")[0] == _PACKAGE:
        raise StateError(f"{where}: expected data, got {value!r:.100} of {cls.__qualname__}")
    return cls


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _class_named(name: str) -> Any:
    module, _, path = name.partition(":")
    if module.split(".")[0] != _PACKAGE:
        raise StateError(f"expected a class of {_PACKAGE}, got {name!r}")
    found: Any = importlib.import_module(module)
    for each in path.split("."):
        found = getattr(found, each)
    return found
