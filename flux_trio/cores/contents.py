"""What an object of a state holds, as `put_down` and `fingerprint` see it. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["tuple", "state", "attributes"]


def contents_of(value: Any) -> tuple[Kind, Any]:
    """The items of a NamedTuple; else what its class makes of it, or its attributes by name."""
    if isinstance(value, tuple):
        return "tuple", tuple(value)
    if isinstance(value, msgspec.Struct):
        return "attributes", {name: getattr(value, name) for name in value.__struct_fields__}
    if (
        getattr(type(value).__getstate__, "__module__", "") == "dataclasses"
    ):  # of a frozen one with slots
        return "attributes", {each.name: getattr(value, each.name) for each in fields(value)}
    state = value.__getstate__()
    given = state if isinstance(state, tuple) and _is_slots(state) else (state,)
    held: dict[str, Any] = {}
    for each in given:
        if each is not None and not isinstance(each, dict):
            return "state", state
        held |= each or {}
    return "attributes", held


def _is_slots(state: tuple[Any, ...]) -> bool:
    return len(state) == 2 and all(each is None or isinstance(each, dict) for each in state)
