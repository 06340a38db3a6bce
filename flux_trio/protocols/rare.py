"""Attributes that few objects of a kind have, so that the many others give no room to them."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class HasRare(Protocol):
    """`rare` is None until one of them is set."""

    rare: dict[str, Any] | None


class Rare(Generic[T]):
    """One such attribute: `default` where nothing else was set. It is kept in the object's `rare`.

    The default must be one that nobody changes in place.
    """

    def __init__(self, default: T) -> None:
        self._default = default

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, holder: HasRare, _owner: type) -> T:
        rare = holder.rare
        if rare is None:
            return self._default
        value: T = rare.get(self._name, self._default)
        return value

    def __set__(self, holder: HasRare, value: T) -> None:
        if value is not self._default:
            if holder.rare is None:
                holder.rare = {}
            holder.rare[self._name] = value
        elif holder.rare is not None:
            holder.rare.pop(self._name, None)
            holder.rare = holder.rare or None
