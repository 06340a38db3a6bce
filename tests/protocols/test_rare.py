"""Attributes that few objects have."""

from __future__ import annotations

from typing import Any

from flux_trio.protocols import Rare


class Thing:
    __slots__ = ("rare",)

    name = Rare[str | None](None)
    is_odd = Rare(False)

    def __init__(self) -> None:
        self.rare: dict[str, Any] | None = None


def test_nothing_is_kept_of_what_is_as_usual() -> None:
    thing = Thing()
    thing.is_odd = False
    assert (thing.name, thing.is_odd, thing.rare) == (None, False, None)


def test_what_was_set_is_there_until_it_is_as_usual_again() -> None:
    thing = Thing()
    thing.name, thing.is_odd = "it", True
    assert (thing.name, thing.is_odd) == ("it", True)
    thing.name = None
    assert (thing.name, thing.is_odd) == (None, True)
    thing.is_odd = False
    assert thing.rare is None
