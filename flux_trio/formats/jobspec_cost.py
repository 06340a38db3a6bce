"""What a jobspec costs while its job waits.

Most of a jobspec is kept as text, or not at all. What `COSTING` names is read into memory: the
scheduler keeps a job's constraints, and the job manager and its plugins its dependencies. There,
each value and each key takes about 64 bytes beside its characters. It grows no further when it is
read: see `constraint` for hostlists and idsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flux_trio.formats.errors import FormatError, Words

COSTING: Final = ("constraints", "dependencies")
"""Keys of `attributes.system`."""

VALUE_COST: Final = 64

KEY_COST_MAX: Final = 1 << 20
"""The most that one of these keys may cost: it is worked on without a pause, in at most 50 ms."""


def cost_of(value: object) -> int:
    """Return the cost of decoded JSON: VALUE_COST for each value and key, and its bytes."""
    cost, left = 0, [value]
    while left:
        value = left.pop()
        cost += VALUE_COST
        match value:
            case str():
                cost += len(value)
            case int():
                cost += value.bit_length() // 8
            case dict():
                left += value.keys()
                left += value.values()
            case list():
                left += value
    return cost


def costs_of(system: Mapping[str, object]) -> dict[str, int]:
    """Return the cost of each key of `attributes.system` that has one."""
    return {key: cost_of(system[key]) for key in COSTING if key in system}


def check_costs(system: Mapping[str, object]) -> None:
    """Raise a FormatError for a key that costs too much."""
    for key, cost in costs_of(system).items():
        if cost > KEY_COST_MAX:
            raise FormatError(f"a cost of at most {KEY_COST_MAX}", Words(f"{cost}"), key)
