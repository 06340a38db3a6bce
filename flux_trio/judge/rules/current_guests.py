"""What guests may not ask for, with the numbers of flags in the current edition."""

from __future__ import annotations

from typing import Final

from flux_trio.judge.engine.rule import Rules
from flux_trio.judge.rules.guests import require

RULES: Final = Rules(current=True)

require(RULES, "invariant.guests-as-allowed", {4: "waitable", 8: "novalidate"})
