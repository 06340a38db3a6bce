"""Attributes that few objects of a class have; the other objects spend no memory on them."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, get_args

T = TypeVar("T")


class HasRare(Protocol):
    """An object with rare attributes; `rare` is None until one is set."""

    @property
    def rare(self) -> dict[str, Any] | None:
        """The attributes that are set, by name."""


class SetsRare(Protocol):
    """An object whose rare attributes may be set."""

    rare: dict[str, Any] | None


class Rare(Generic[T]):
    """A rare attribute: its value is kept in the object's `rare`, or is `default` if not set.

    The default must not be modified in place.
    """

    def __init__(self, default: T) -> None:
        self._default = default

    @property
    def hint(self) -> Any:
        """Return the type of the value that the class of the holder states; Any without one."""
        stated = get_args(getattr(self, "__orig_class__", None))
        return stated[0] if stated else Any

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, holder: HasRare, _owner: type) -> T:
        rare = holder.rare
        if rare is None:
            return self._default
        value: T = rare.get(self._name, self._default)
        return value

    def __set__(self, holder: SetsRare, value: T) -> None:
        if value is not self._default:
            if holder.rare is None:
                holder.rare = {}
            holder.rare[self._name] = value
        elif holder.rare is not None:
            holder.rare.pop(self._name, None)
            holder.rare = holder.rare or None
