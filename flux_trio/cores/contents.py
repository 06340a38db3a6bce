"""What an object of a state holds, as `put_down` and `fingerprint` see it. Pure.

What a class holds is found out once: a dump asks for the contents of many objects of few classes.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["tuple", "state", "attributes"]
Reader: TypeAlias = Callable[[Any], Any]


def class_of(value: Any) -> Any:
    """The class, as something that may be looked up in a cache."""
    return type(value)


def contents_of(value: Any) -> tuple[Kind, Any]:
    """The items of a NamedTuple; else what its class makes of it, or its attributes by name."""
    kind, read = contents_reader(class_of(value))
    return kind, read(value)


@cache
def contents_reader(cls: Any) -> tuple[Kind, Reader]:
    """How to read what an object of `cls` holds.

    The attributes are a new dictionary, or the object's own, which must not be changed.
    """
    if issubclass(cls, tuple):
        return "tuple", tuple
    if issubclass(cls, msgspec.Struct):
        return "attributes", _reader_of_all(cls.__struct_fields__)
    if getattr(cls.__getstate__, "__module__", "") == "dataclasses":  # of a frozen one with slots
        assert is_dataclass(cls)
        return "attributes", _reader_of_all(tuple(each.name for each in fields(cls)))
    if cls.__getstate__ is not object.__getstate__:
        return "state", lambda value: value.__getstate__()
    slots = copyreg._slotnames(cls)  # type: ignore[attr-defined]  # those of all bases
    if not slots:
        return "attributes", vars
    return "attributes", _reader_of_set(tuple(slots), has_more=bool(cls.__dictoffset__))


def _reader_of_all(names: tuple[str, ...]) -> Reader:
    """Attributes that every object has."""
    if len(names) < 2:
        return lambda value: {name: getattr(value, name) for name in names}
    values = attrgetter(*names)
    return lambda value: dict(zip(names, values(value), strict=True))


def _reader_of_set(slots: tuple[str, ...], *, has_more: bool) -> Reader:
    """Attributes in slots that may be empty; `has_more` that are in none."""

    def read(value: Any) -> dict[str, Any]:
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        return vars(value) | held if has_more else held

    return read
