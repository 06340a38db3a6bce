"""Acts: what happens to the program, what is looked at, and which clauses it can break."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from flux_trio.editions import Edition
from flux_trio.lab.exercise.stage import Stage


class Order(StrEnum):
    """What the author of a scheduler says about the order in which it starts jobs."""

    FIFO = "fifo"
    PRIORITY = "priority"
    ANY = "any"


class Ability(StrEnum):
    """What a scheduler or a job manager may be without, as its author says."""

    CONSTRAINTS = "constraints"
    GPUS = "gpus"
    GUESTS = "guests"
    UPDATES = "updates"


OF_SCHEDULER: Final = frozenset({Ability.CONSTRAINTS, Ability.GPUS})
OF_MANAGER: Final = frozenset({Ability.GUESTS, Ability.UPDATES})
GUESTS: Final = frozenset({Ability.GUESTS})
UPDATES: Final = frozenset({Ability.UPDATES})
"""What an act needs that lets users other than the owner do something, or changes time limits."""


def anywhere(_: Edition) -> bool:
    """Say that an act is played in every edition."""
    return True


def where_targets_are_taken(edition: Edition) -> bool:
    """Say whether targets that are excluded are taken from the scheduler, with their jobs."""
    return edition.targets_change_groups


def where_hello_is_refused(edition: Edition) -> bool:
    """Say whether an execution service is refused while another one has a job to start."""
    return edition.hello_needs_no_start_outstanding


def where_targets_stay(edition: Edition) -> bool:
    """Say whether targets that are excluded are down, and their jobs run on."""
    return not edition.targets_change_groups


Play: TypeAlias = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens to the program: a title, and the function that does it.

    `looks` says what is looked at, and `clauses` are those that can be broken in the situation that
    the act brings about: if it came to its end, they are kept. The function raises Stuck or
    FluxError. When it has returned, every job must come to its end. An act is played if the author
    has named one of `orders`, if the program has what the act `needs`, and if the edition is one of
    `where`. One that `is_for_ours` does what only an instance of flux-trio lets an exercise do.
    """

    title: str
    looks: str
    clauses: tuple[str, ...]
    play: Play
    orders: frozenset[Order] = frozenset(Order)
    needs: frozenset[Ability] = frozenset()
    where: Callable[[Edition], bool] = anywhere
    is_for_ours: bool = False


class Acts(list[Act]):
    """Acts in the order in which they are played: that of their functions."""

    def act(
        self,
        title: str,
        looks: str,
        clauses: tuple[str, ...],
        orders: frozenset[Order] = frozenset(Order),
        needs: frozenset[Ability] = frozenset(),
        where: Callable[[Edition], bool] = anywhere,
        *,
        is_for_ours: bool = False,
    ) -> Callable[[Play], Play]:
        """Add the act that a function plays, see `Act`; a decorator."""

        def add(play: Play) -> Play:
            act = Act(title, looks, clauses, play, orders, needs, where, is_for_ours)
            self.append(act)
            return play

        return add

    def chosen(self, order: Order, without: frozenset[Ability]) -> list[Act]:
        """Return the acts for a scheduler that starts jobs in this order."""
        return [each for each in self if order in each.orders and each.needs.isdisjoint(without)]
