"""What an object of a state holds, as `put_down` sees it. Pure.

How to read the objects of a class is found out once, because a dump reads many objects of few
classes.
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
    """Return the class, typed so that a cached function may take it."""
    return type(value)


def contents_of(value: Any) -> tuple[Kind, Any]:
    """Return the items of a NamedTuple, the result of `__getstate__`, or the attributes by name."""
    kind, read = contents_reader(class_of(value))
    return kind, read(value)


@cache
def contents_reader(cls: Any) -> tuple[Kind, Reader]:
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


def _reader_of_all(names: tuple[str, ...]) -> Reader:
    """Return a reader of attributes that every object has."""
    if len(names) < 2:
        return lambda value: {name: getattr(value, name) for name in names}
    values = attrgetter(*names)
    return lambda value: dict(zip(names, values(value), strict=True))


def _reader_of_set(slots: tuple[str, ...], *, has_more: bool) -> Reader:
    """Return a reader of slots, which may be empty; `has_more` adds attributes outside slots."""

    def read(value: Any) -> dict[str, Any]:
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        return vars(value) | held if has_more else held

    return read
