"""Why a clause is broken: the known departures, and the script that shows each to a maintainer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from flux_trio.judge import Violation
from flux_trio.judge.known import Departure, load_shipped

ROOT: Final = Path(__file__).parents[3]
DEPARTURES: Final = ROOT / "docs" / "reference" / "flux-core-0.88.md"
OF_CORE: Final = load_shipped("flux-core-0.88")
OF_FLUXION: Final = load_shipped("fluxion-0.54")
KNOWN: Final = {each.why: each for each in (*OF_CORE, *OF_FLUXION)}
"""Each departure by its reason, of which no two have the same."""
FLUXION_SCRIPTS: Final = {
    "20.nslots.3": "no-nslots.sh",
    "27.impl.10": "alloc-answered-with-enosys.sh",
    "28.criteria.3": "denied-while-drained.sh",
    "invariant.denied-although-satisfiable": "denied-while-drained.sh",
}
"""The script of tests/real/departures/fluxion that shows a departure of fluxion."""
_PLACE: Final = "../../tests/real/departures/fluxion"
_ROW: Final = re.compile(r"^\| `[^`]+` \| (\[[^\]]+\]\([^)]+\))", re.MULTILINE)


def departure_of(violation: Violation) -> Departure | None:
    """Return the known departure that a violation is one of, or follows from."""
    return next((each for each in KNOWN.values() if each.covers(violation)), None)


def scripts() -> dict[str, str]:
    """Return the link to the script of each departure, by its reason.

    The page about flux-core's has a row for each, in their order.
    """
    rows = _ROW.findall(DEPARTURES.read_text(encoding="utf-8"))
    found = {each.why: link for each, link in zip(OF_CORE, rows, strict=True)}
    for each in OF_FLUXION:
        name = FLUXION_SCRIPTS[each.clause]
        found[each.why] = f"[{name}]({_PLACE}/{name})"
    return found
