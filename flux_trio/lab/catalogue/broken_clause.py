"""The fault by which a party breaks a chosen clause."""

from __future__ import annotations

import msgspec

from flux_trio.lab.catalogue.base import Count, Lie, Which
from flux_trio.lab.catalogue.breaches import BREACHES
from flux_trio.lab.catalogue.lies import Said


class BrokenClause(Lie, frozen=True):
    """A party breaks `clause`, in the `nth` message about which it can; see `BREACHES`."""

    clause: str
    nth: Count = 1

    @property
    def sought(self) -> Which:
        return msgspec.structs.replace(BREACHES[self.clause].lie.which, nth=self.nth)

    def fits(self, message: Said) -> bool:
        return BREACHES[self.clause].fits(message)

    def said(self, message: Said) -> list[Said]:
        return BREACHES[self.clause].lie.said(message)
