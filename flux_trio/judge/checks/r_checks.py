"""Checks of an R (RFC 20): each is the rule of a clause; a valid R passes all of them.

The checks are in rules/rfc20_format and rules/rfc20_values. A plain R passes all of them, and its
form tells which of them have anything to judge: so the checks are made once for each form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from flux_trio.judge.checks.shapes import idset_of
from flux_trio.judge.engine.rule import Broken, Rules, Said
from flux_trio.judge.views.resource_sets import LOOKUPS, R_RECORDS, SeenR, found_in, is_hostlist

Found: TypeAlias = str | bool | None
"""An error text; True: kept; None: nothing to judge."""

Check: TypeAlias = Callable[[Any, float], Found]
"""Of an R and the time of the record that shows it, in seconds since the Unix epoch."""

CHECKS: Final[list[Check]] = []
"""The checks of every R."""


# --- the form of a plain R


class _Children(msgspec.Struct, forbid_unknown_fields=True):
    core: str
    gpu: str | UnsetType = UNSET


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    rank: str
    children: _Children


class _Execution(msgspec.Struct, forbid_unknown_fields=True):
    R_lite: Annotated[list[_Entry], msgspec.Meta(min_length=1, max_length=1)]
    nodelist: Annotated[list[str], msgspec.Meta(min_length=1)]
    nslots: Annotated[int, msgspec.Meta(gt=0)] | UnsetType = UNSET
    starttime: float | UnsetType = UNSET
    expiration: float | UnsetType = UNSET


class _PlainR(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    execution: _Execution


class Form(NamedTuple):
    """Which parts a plain R has, and whether it is an inventory."""

    has_gpus: bool
    has_nslots: bool
    has_starttime: bool
    has_expiration: bool
    is_inventory: bool


def form_of(r: SeenR) -> Form | None:
    """Return the form of a plain R: one entry, no properties, no `scheduling`; else None."""
    try:
        execution = msgspec.convert(r.value, _PlainR).execution
    except (msgspec.ValidationError, ValueError, OverflowError, RecursionError):
        return None  # also texts that are not UTF-8, and numbers beyond all bounds
    children = execution.R_lite[0].children
    form = Form(
        children.gpu is not UNSET,
        execution.nslots is not UNSET,
        execution.starttime is not UNSET,
        execution.expiration is not UNSET,
        r.jobid is None,
    )
    idsets = [execution.R_lite[0].rank, children.core]
    idsets += [children.gpu] if children.gpu is not UNSET else []
    is_regular = all(map(idset_of, idsets)) and all(map(is_hostlist, execution.nodelist))
    return form if is_regular and not (form.is_inventory and form.has_nslots) else None


# --- checks as rules


def each_r(
    rules: Rules,
    clause: str,
    of: Literal["all", "inventory"] = "all",
    *,
    is_of_form: bool = True,
) -> Callable[[Check], Check]:
    """Register the decorated check as the rule of `clause`, for every R that a trace shows.

    The answer for a plain R follows from its form, unless the check looks at times.
    """

    def register(check: Check) -> Check:
        def judge(r: SeenR) -> Said:
            if r.jobid is not None and of == "inventory":
                return None
            found = check(r.value, r.t)
            if found is True or not isinstance(found, str):
                return found
            return Broken(f"{r.what}: {found}", job=r.jobid)

        form = form_of if is_of_form else None
        rules.each(clause, R_RECORDS, of=found_in, form=form, views=[LOOKUPS])(judge)
        if of == "all":
            CHECKS.append(check)
        return check

    return register


def wanted(expected: str, got: Any) -> str:
    """Return a text with the expected and the actual value."""
    return f"expected {expected}, got {got!r:.80}"


def optional(found: Any, key: str, shape: type | tuple[type, ...], expected: str) -> Found:
    """Check that an optional key has a value of a shape."""
    if not isinstance(found, dict) or key not in found:
        return None
    value = found[key]
    fits = isinstance(value, shape) and not isinstance(value, bool)
    return fits or f"{key}: {wanted(expected, value)}"


def problem_of(r: Any, t: float) -> str | None:
    """Return the first error of an R, or None for a valid R."""
    found = (check(r, t) for check in CHECKS)
    return next((each for each in found if isinstance(each, str)), None)
