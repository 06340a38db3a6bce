"""The fault by which a party breaks a chosen clause."""

from __future__ import annotations

import msgspec

from flux_trio.cores.turns import Outgoing
from flux_trio.formats import FormatError
from flux_trio.lab.catalogue.base import Lie, fault
from flux_trio.lab.catalogue.breaches import BREACHES, UNBREAKABLE
from flux_trio.lab.catalogue.places import Count, Machine, SentMessage


@fault
class BrokenClause(Lie, frozen=True):
    """A party breaks `clause`, in the `nth` message about which it can; see `BREACHES`."""

    clause: str
    nth: Count = 1

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        """Raise FormatError if no lie breaks the clause; it names those near to it."""
        if self.clause in BREACHES:
            return
        section = self.clause.rpartition(".")[0]
        near = [each for each in BREACHES if each.startswith(f"{section}.")]
        expected = "a clause of the section Break a chosen clause of docs/reference/faults.md"
        if near:
            expected += f", such as {', '.join(near)}"
        if self.clause in UNBREAKABLE:
            expected += f" ({self.clause} is not there: {UNBREAKABLE[self.clause]})"
        raise FormatError(expected, self.clause, "clause")

    @property
    def which(self) -> SentMessage:
        return msgspec.structs.replace(BREACHES[self.clause].lie.which, nth=self.nth)

    @property
    def has(self) -> dict[str, object]:
        """The keys and values that a message has to have so that the lie can take its place."""
        return dict(BREACHES[self.clause].has)

    def fits(self, message: Outgoing) -> bool:
        return BREACHES[self.clause].fits(message)

    def in_place_of(self, message: Outgoing) -> list[Outgoing]:
        return BREACHES[self.clause].lie.in_place_of(message)
