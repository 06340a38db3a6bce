"""Job ids in texts, as people type them (RFC 19, F58)."""

from __future__ import annotations

import re
from typing import Final

from flux_trio.formats.fluid import FLUID_MAX, format_fluid

_IN_TEXT: Final = re.compile(r"\b(jobs?) ([0-9]{1,20})\b")


def spelled_id(jobid: int) -> str:
    """Return a job id as `ƒ2`; a number that is no id stays as it is."""
    return format_fluid(jobid, "f58") if 0 <= jobid <= FLUID_MAX else str(jobid)


def spelled(text: str) -> str:
    """Return a text with the id in each `job 1` spelled."""
    return _IN_TEXT.sub(lambda found: f"{found[1]} {spelled_id(int(found[2]))}", text)
