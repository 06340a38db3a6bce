"""Values as plain data, and back: see `state.py`, which says what may be written. Pure.

A state is written after every turn in some tests. So facts about a class are found out once, and
plain data is copied as it is.
"""

from __future__ import annotations

import copyreg
import importlib
import math
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import ModuleType, NoneType
from typing import Any, Final, Literal, TypeAlias

import msgspec

Plain: TypeAlias = Any
"""What JSON can hold; an int is below 2**63 and a float is finite."""

INT_MAX: Final = 2**63 - 1
_PACKAGE: Final = "flux_trio"

_AS_THEY_ARE: Final = frozenset((str, bool, NoneType))
_COLLECTIONS: Final[dict[type, str]] = {
    list: "list",
    deque: "deque",
    set: "set",
    dict: "dict",
    OrderedDict: "ordered",
    Counter: "counter",
}


class StateError(Exception):
    """A state has a value that is not data, or data describes no state; the text says where."""


class NotData:
    """Base of the classes of this package whose objects are refused."""


class _RefusedError(Exception):
    """`value` is not data."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Writer:
    """Writes values; an object that occurs again is written as its number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used again while this writes

    def write(self, value: Any, where: str) -> Plain:
        """Return `value` as plain data. Raises StateError; `where` says whose value it is."""
        try:
            return self.written(value)
        except _RefusedError as error:
            bad = error.value
            place = _place_of(bad, value, where, set()) or where
            text = f"{place}: expected data, got {bad!r:.100} of {type(bad).__qualname__}"
            raise StateError(text) from None

    def written(self, value: Any) -> Plain:
        """Return a value within the one that `write` writes, as plain data."""
        cls = class_of(value)
        if cls in _AS_THEY_ARE:
            return value
        if cls is int:
            return value if -INT_MAX <= value <= INT_MAX else ["int", hex(value)]
        if cls is float:
            return value if math.isfinite(value) else ["float", str(value)]
        if cls is tuple:
            return ["tuple", self._items(value)]
        tag = _COLLECTIONS.get(cls)
        if tag is None and (write := _value_writer(cls)) is not None:
            return write(self, value)
        number = self._numbers.get(id(value))
        if number is not None:
            return ["same", number]
        number = self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        return self._object(number, value) if tag is None else self._collection(tag, number, value)

    def _collection(self, tag: str, number: int, value: Any) -> Plain:
        if isinstance(value, dict):
            written = self.written
            return [tag, number, [[written(key), written(held)] for key, held in value.items()]]
        if isinstance(value, set):
            return [tag, number, self.in_order(value)]
        if isinstance(value, deque) and value.maxlen is not None:
            return [tag, number, self._items(value), value.maxlen]
        return [tag, number, self._items(value)]

    def _object(self, number: int, value: Any) -> Plain:
        if isinstance(value, array):
            return ["array", number, value.typecode, value.tolist()]
        cls = class_of(value)
        if not _is_data(cls):
            raise _RefusedError(value)
        kind, read = contents_reader(cls)
        held = read(value)
        written = self.written
        if kind == "attributes":
            held = {name: written(each) for name, each in held.items()}
        elif kind == "tuple":
            held = self._items(held)
        else:
            held = written(held)
        return ["object", number, name_of(cls), kind, held]

    def _items(self, values: Any) -> list[Plain]:
        if _AS_THEY_ARE.issuperset(map(type, values)):
            return list(values)
        written = self.written
        return [written(each) for each in values]

    def in_order(self, values: Iterable[Any]) -> list[Plain]:
        """Return the items of a set, in an order that depends only on the items."""
        if set(map(type, values)) in ({int}, {str}):
            return self._items(sorted(values))
        return sorted(map(self.written, values), key=repr)


class Reader:
    """Reads what one `Writer` has written."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}

    def read(self, data: Plain) -> Any:
        """Return the value of `data`. Raises StateError for data that no `Writer` writes."""
        if type(data) is not list:
            return data
        try:
            tag, *rest = data
            return _READERS[tag](self, *rest)
        except (TypeError, LookupError, ValueError, AttributeError) as error:
            text = f"expected a value as put_down writes it, got {data!r:.100}"
            raise StateError(text) from error

    def items(self, written: list[Plain]) -> list[Any]:
        """Return the items of a collection."""
        if list not in set(map(type, written)):
            return written
        return list(map(self.read, written))


@cache
def class_named(name: str) -> Any:
    """Return the class of this package with this `name_of`. Raises StateError if there is no such
    class.

    Only a class that is defined in its module is found, since the name may come from a file.
    """
    module, _, path = name.partition(":")
    if module.split(".")[0] != _PACKAGE:
        raise StateError(f"expected a class of {_PACKAGE}, got {name!r}")
    try:
        found: Any = importlib.import_module(module)
        for each in path.split("."):
            found = getattr(found, each)
    except (ImportError, AttributeError):
        raise StateError(f"expected a class of this version, got {name!r}") from None
    if not isinstance(found, type) or name_of(found) != name:
        raise StateError(f"expected the name of a class, got {name!r}")
    return found


def _read_enum(_reader: Reader, name: str, value: Any) -> Any:
    cls = class_named(name)
    if not issubclass(cls, Enum):
        raise StateError(f"expected an enum, got {name!r}")
    return cls(value)


def _read_dict(make: Callable[[], dict[Any, Any]]) -> Callable[..., Any]:
    def read(reader: Reader, number: int, written: list[Plain]) -> Any:
        made = reader.objects[number] = make()
        value_of = reader.read
        for key, value in written:
            made[value_of(key)] = value_of(value)
        return made

    return read


def _read_deque(
    reader: Reader, number: int, written: list[Plain], maxlen: int | None = None
) -> Any:
    made = reader.objects[number] = deque(maxlen=maxlen)
    made.extend(reader.items(written))
    return made


def _read_list(reader: Reader, number: int, written: list[Plain]) -> Any:
    made: list[Any] = []
    reader.objects[number] = made
    made.extend(reader.items(written))
    return made


def _read_set(reader: Reader, number: int, written: list[Plain]) -> Any:
    made: set[Any] = set()
    reader.objects[number] = made
    made.update(reader.items(written))
    return made


def _read_array(reader: Reader, number: int, typecode: str, written: list[Plain]) -> Any:
    made = reader.objects[number] = array(typecode, written)
    return made


def _read_object(reader: Reader, number: int, name: str, kind: str, content: Plain) -> Any:
    cls: Any = class_named(name)
    if not _is_data(cls):
        raise StateError(f"expected a class of data, got {name!r}")
    if kind == "tuple":
        made = reader.objects[number] = cls._make(reader.items(content))
    elif kind == "state":
        made = reader.objects[number] = cls.__new__(cls)
        made.__setstate__(reader.read(content))
    elif issubclass(cls, msgspec.Struct):
        made = cls(**{attribute: reader.read(value) for attribute, value in content.items()})
        reader.objects[number] = made
    else:
        made = reader.objects[number] = cls.__new__(cls)
        for attribute, value in content.items():
            object.__setattr__(made, attribute, reader.read(value))  # of a frozen object, too
    return made


_READERS: Final[dict[str, Callable[..., Any]]] = {
    "enum": _read_enum,
    "int": lambda _reader, text: int(text, 16),
    "float": lambda _reader, text: float(text),
    "bytes": lambda _reader, text: text.encode("latin-1"),
    "frozenset": lambda reader, written: frozenset(reader.items(written)),
    "tuple": lambda reader, written: tuple(reader.items(written)),
    "same": lambda reader, number: reader.objects[number],
    "list": _read_list,
    "deque": _read_deque,
    "set": _read_set,
    "dict": _read_dict(dict),
    "ordered": _read_dict(OrderedDict),
    "counter": _read_dict(Counter),
    "array": _read_array,
    "object": _read_object,
}


@cache
def _value_writer(cls: Any) -> Callable[[Writer, Any], Plain] | None:
    """Return how to write values that are compared by content; None for other objects."""
    if issubclass(cls, Enum):
        name = name_of(cls)
        return lambda _writer, value: ["enum", name, value.value]
    if issubclass(cls, bytes):
        return lambda _writer, value: ["bytes", value.decode("latin-1")]
    if issubclass(cls, frozenset):
        return lambda writer, value: ["frozenset", writer.in_order(value)]
    return None


@cache
def _is_data(cls: Any) -> bool:
    is_code = issubclass(cls, (Callable, Iterator, ModuleType, NotData, type))  # type: ignore[arg-type]
    return not is_code and cls.__module__.split(".")[0] == _PACKAGE


@cache
def name_of(cls: Any) -> str:
    """Return the module of a class and its place there."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _place_of(wanted: Any, value: Any, where: str, seen: set[int]) -> str | None:
    """Return the place of the object `wanted` within `value`; None if it is not found."""
    if value is wanted:
        return where
    if id(value) in seen:
        return None
    seen.add(id(value))
    for place, held in _held_in(value, where):
        found = _place_of(wanted, held, place, seen)
        if found is not None:
            return found
    return None


def _held_in(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield where, key
            yield f"{where}[{key!r}]", held
    elif isinstance(value, (list, deque)):
        yield from ((f"{where}[]", held) for held in value)
    elif isinstance(value, (tuple, set, frozenset)):
        yield from ((where, held) for held in value)
    elif not isinstance(value, Enum) and _is_data(class_of(value)):
        kind, held = contents_of(value)
        if kind == "attributes":
            yield from ((f"{where}.{name}", each) for name, each in held.items())
        else:
            yield where, held


# --- what an object holds

Kind: TypeAlias = Literal["tuple", "state", "attributes"]
Getter: TypeAlias = Callable[[Any], Any]


def class_of(value: Any) -> Any:
    """Return the class, typed so that a cached function may take it."""
    return type(value)


def contents_of(value: Any) -> tuple[Kind, Any]:
    """Return the items of a NamedTuple, the result of `__getstate__`, or the attributes by name."""
    kind, read = contents_reader(class_of(value))
    return kind, read(value)


@cache
def contents_reader(cls: Any) -> tuple[Kind, Getter]:
    """Return how to read the contents of an object of `cls`.

    The attributes are a new dictionary, or the object's own, which must not be changed.
    """
    if issubclass(cls, tuple):
        return "tuple", tuple
    if issubclass(cls, msgspec.Struct):
        return "attributes", _reader_of_all(cls.__struct_fields__)
    if getattr(cls.__getstate__, "__module__", "") == "dataclasses":  # frozen, with slots
        assert is_dataclass(cls)
        return "attributes", _reader_of_all(tuple(each.name for each in fields(cls)))
    if cls.__getstate__ is not object.__getstate__:
        return "state", lambda value: value.__getstate__()
    slots = copyreg._slotnames(cls)  # type: ignore[attr-defined]  # those of all bases
    if not slots:
        return "attributes", vars
    return "attributes", _reader_of_set(tuple(slots), has_more=bool(cls.__dictoffset__))


def _reader_of_all(names: tuple[str, ...]) -> Getter:
    """Return a reader of attributes that every object has."""
    if len(names) < 2:
        return lambda value: {name: getattr(value, name) for name in names}
    values = attrgetter(*names)
    return lambda value: dict(zip(names, values(value), strict=True))


def _reader_of_set(slots: tuple[str, ...], *, has_more: bool) -> Getter:
    """Return a reader of slots, which may be empty; `has_more` adds attributes outside slots."""

    def read(value: Any) -> dict[str, Any]:
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        return vars(value) | held if has_more else held

    return read
