"""A mutant, and the families that there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True)
class Mutant:
    """One change of the program, made in memory."""

    name: str
    place: str
    """What it changes: tests reach places. Mutants of one place have it in common."""
    group: str
    """What results are counted by, and may be run alone."""
    plant: Callable[[], None]


Note = Callable[[str], None]


class Family(Protocol):
    """What a module of a family defines."""

    def mutants(self) -> Iterable[Mutant]:
        """All of this family, their names unique."""

    def probe(self, note: Note, set_aside: Note) -> None:
        """Call `note` with each place whenever it is reached from now on.

        `set_aside` is called with a reason when what runs looks at the places themselves, so that
        it cannot tell right from wrong.
        """


FAMILIES: Final[dict[str, tuple[str, str]]] = {
    "tables": ("tests.planter.tables", "flux_trio.protocols")
}
"""Module of the family, and the module of the program after whose import a mutant is planted."""


def family_named(name: str) -> Family:
    """The module of family `name`; importing it imports the program."""
    return importlib.import_module(FAMILIES[name][0])


def mutants_of(family: str) -> dict[str, Mutant]:
    """The mutants of `family`, by name."""
    found: dict[str, Mutant] = {}
    for mutant in family_named(family).mutants():
        assert mutant.name not in found, f"two mutants are named {mutant.name}"
        found[mutant.name] = mutant
    return found
