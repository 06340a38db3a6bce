"""Checks of an R (RFC 20): each is the rule of a clause; a valid R passes all of them.

The checks are in rules/rfc20_format and rules/rfc20_values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.views.resource_sets import LOOKUPS, R_RECORDS, SeenR, found_in

Found: TypeAlias = str | bool | None
"""What a check finds: the text of an error, True if the clause is kept, None if there is nothing to
judge."""

Check: TypeAlias = Callable[[Any, float], Found]
"""A function that checks an R (RFC 20), given with the time of the record that has it, in seconds
since the Unix epoch."""

CHECKS: Final[list[Check]] = []
"""The checks that each R has to pass."""


# --- checks as rules


def each_r(
    rules: Rules, clause: str, of: Literal["all", "inventory"] = "all"
) -> Callable[[Check], Check]:
    """Register the decorated check as the rule of `clause`, for every R that a trace shows."""

    def register(check: Check) -> Check:
        def judge(r: SeenR) -> Finding:
            if r.jobid is not None and of == "inventory":
                return None
            found = check(r.value, r.t)
            if found is True or not isinstance(found, str):
                return found
            return Broken(f"{r.what}: {found}", job=r.jobid)

        rules.each(clause, R_RECORDS, of=found_in, views=[LOOKUPS])(judge)
        if of == "all":
            CHECKS.append(check)
        return check

    return register


def wanted(expected: str, got: Any) -> str:
    """Return the text of an error, with the expected and the actual value."""
    return f"expected {expected}, got {got!r:.80}"


def optional(found: Any, key: str, shape: type | tuple[type, ...], expected: str) -> Found:
    """Check that a key, if it is there, has a value of a shape."""
    if not isinstance(found, dict) or key not in found:
        return None
    value = found[key]
    fits = isinstance(value, shape) and not isinstance(value, bool)
    return fits or f"{key}: {wanted(expected, value)}"


def problem_of(r: Any, t: float) -> str | None:
    """Return the first error of an R, or None for a valid R."""
    found = (check(r, t) for check in CHECKS)
    return next((each for each in found if isinstance(each, str)), None)
