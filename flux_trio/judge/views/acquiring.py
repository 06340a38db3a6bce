"""What a response to resource.acquire says (RFC 28), in the keys of either edition.

The classic edition has a `type` and says one thing; the current edition has no `type`, and its keys
say what has changed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import idset_of

NONE: Final = Idset()


class Change(NamedTuple):
    """What a response to resource.acquire changes for the peer that acquires."""

    resources: Any = None
    """The R (RFC 20) that is added, or the whole inventory; None if the response has no R."""
    up: Idset = NONE
    down: Idset = NONE
    shrunk: Idset = NONE
    expiration: float | None = None
    """The new expiration of the inventory, in seconds since the Unix epoch; None if it stays."""
    is_whole: bool = False
    """Whether `resources` are the whole inventory, as in the first response of the current
    edition."""


NO_CHANGE: Final = Change()


def change_of(content: dict[str, Any]) -> Change:
    """Return what a response to resource.acquire says. What cannot be read of it is left empty."""
    match content.get("type"):
        case None:
            return Change(
                content.get("resources"),
                _targets(content, "up"),
                _targets(content, "down"),
                _targets(content, "shrink"),
                _time(content.get("expiration")),
                "resources" in content,
            )
        case "grow":
            return Change(content.get("resources"), up=_targets(content, "online"))
        case "shrink":
            return Change(shrunk=_targets(content, "targets"))
        case "online":
            return Change(up=_targets(content, "targets"))
        case "offline":
            return Change(down=_targets(content, "targets"))
    return NO_CHANGE


def _targets(content: dict[str, Any], key: str) -> Idset:
    return idset_of(content.get(key)) or NONE


def _time(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None
