"""What the types of a state say about its values: annotations, and `formats/meanings.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from flux_trio.cores.plain import class_of
from flux_trio.formats.meanings import Items, Keys, Meaning, Number
from flux_trio.protocols import Rare

Hint: TypeAlias = Any
"""A type, as an annotation has it."""


def origin_of(hint: Hint) -> Any:
    """Return `get_origin(hint)` as Any, because mypy takes it for a ParamSpec."""
    return get_origin(hint)


@lru_cache(maxsize=4096)
def resolve(hint: Hint, kind: Any, length: int) -> tuple[Hint, Any]:
    """Return the member of `hint` that fits a value of class `kind`, and the value's meaning.

    `length` tells tuples of different lengths apart. Raises TypeError when a number may mean two
    things: only one of them can be right.
    """
    fits = [each for each in _members(hint) if _may_hold(each[0], kind, length)]
    meanings = {meaning for _, meaning in fits}
    if len(meanings) > 1 and kind in (int, float, str):
        raise TypeError(f"{hint}: expected one meaning of a {kind.__name__}, got {len(meanings)}")
    return fits[0] if fits else (Any, None)


def own_meaning(hint: Hint) -> Any:
    """Return the meaning of the whole of an attribute with this type."""
    return hint.__metadata__[0] if origin_of(hint) is Annotated else None


def _members(hint: Hint, meaning: Any = None) -> Iterable[tuple[Hint, Any]]:
    if origin_of(hint) is Annotated:
        own = [
            each for each in hint.__metadata__ if isinstance(each, (Number, Meaning, Items, Keys))
        ]
        yield from _members(hint.__origin__, own[0] if own else meaning)
    elif origin_of(hint) in (Union, UnionType):
        for each in get_args(hint):
            yield from _members(each, meaning)
    elif isinstance(meaning, (Items, Keys)):
        yield meaning, None
    else:
        yield hint, meaning


def types_by_key(shape: Any) -> Mapping[str, Hint]:
    return get_type_hints(shape, include_extras=True) if is_typeddict(shape) else dict(shape)


def _may_hold(hint: Hint, kind: type, length: int) -> bool:
    if isinstance(hint, Items):
        return kind is list
    if isinstance(hint, Keys) or is_typeddict(hint):
        return kind is dict
    origin = origin_of(hint) or hint
    if not isinstance(origin, type):
        return False
    if kind is tuple and origin is tuple:
        of_items = get_args(hint)
        return not of_items or of_items[-1] is ... or len(of_items) == length
    return issubclass(kind, origin) or (kind is int and origin is float)


def meaning_of(hint: Hint, value: Any) -> Any:
    return resolve(hint, class_of(value), 0)[1]


def item_hints(hint: Hint, length: int) -> list[Hint]:
    if isinstance(hint, Items):
        return [*hint.types, *[Any] * length][:length]
    of_items = get_args(hint)
    if origin_of(hint) is tuple and (not of_items or of_items[-1] is not ...):
        return [*of_items, *[Any] * length][:length]
    return [of_items[0] if of_items else Any] * length


@cache
def _class_hints(cls: type) -> dict[str, Hint]:
    """Return the annotations of `cls`, with the types that its bases' parameters stand for."""
    stands_for: dict[Any, Any] = {}
    for each in cls.__mro__:
        for base in each.__dict__.get("__orig_bases__", ()):
            stands_for |= _parameters_of(base)
    hints = get_type_hints(cls, include_extras=True)
    rare = {
        name: each.hint
        for base in cls.__mro__
        for name, each in vars(base).items()
        if isinstance(each, Rare)
    }
    if rare:
        hints["rare"] = Annotated[dict[str, Any] | None, Keys(tuple(rare.items()))]
    return _filled(hints, stands_for)


def hints_of(value: Any) -> dict[str, Hint]:
    hints = _class_hints(class_of(value))
    made_as = getattr(value, "__orig_class__", None)  # as in Outbox[Call, Action, str]()
    return hints if made_as is None else _filled(hints, _parameters_of(made_as))


def _parameters_of(alias: Any) -> dict[Any, Any]:
    parameters = getattr(get_origin(alias), "__parameters__", ())
    return dict(zip(parameters, get_args(alias), strict=False))


def _filled(hints: Mapping[str, Hint], stands_for: Mapping[Any, Any]) -> dict[str, Hint]:
    return {name: _fill(hint, stands_for) for name, hint in hints.items()}


def _fill(hint: Hint, stands_for: Mapping[Any, Any]) -> Hint:
    if isinstance(hint, TypeVar):
        return stands_for.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not parameters:
        return hint
    return hint[tuple(stands_for.get(each, each) for each in parameters)]


@cache
def state_hint(cls: type) -> Hint:
    return get_type_hints(cls.__getstate__, include_extras=True).get("return", Any)


@cache
def is_value(cls: type) -> bool:
    """Return whether objects of `cls` compare by content and cannot change."""
    by_what: Any = cls.__hash__  # None for a class whose objects can change
    return by_what is not None and by_what is not object.__hash__
