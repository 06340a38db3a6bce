"""Resource limits of a job's tasks: `--rlimit` rules change the command's own (flux-submit(1)).

`-PATTERN` removes the limits that the glob matches, `PATTERN` adds them, `NAME=VALUE` sets one.
Names are those of getrlimit(2) in lower case, without RLIMIT_; values are soft limits, -1 means
unlimited.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping
from typing import Final

from flux_trio.cli.submit.environment import name_pattern

_NOT_BY_DEFAULT: Final = (
    "-memlock", "-ofile", "-msgqueue", "-nice", "-rtprio", "-rttime", "-sigpending",
)  # fmt: skip
_INFINITE: Final = ("unlimited", "infinity", "inf")


def current_limits() -> dict[str, int]:
    """Return the soft limits of this process."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    found = {name: resource.getrlimit(getattr(resource, name))[0] for name in names}
    return {name.removeprefix("RLIMIT_").lower(): value for name, value in found.items()}


def job_limits(rules: Iterable[str], current: Mapping[str, int]) -> dict[str, int]:
    """Apply `rules`, each a list with commas, to `current` in order. Raises ValueError."""
    limits = dict(current)
    for rule in (*_NOT_BY_DEFAULT, *",".join(rules).split(",")):
        if rule:
            limits = _apply(rule, limits, current)
    return limits


def _apply(rule: str, limits: dict[str, int], current: Mapping[str, int]) -> dict[str, int]:
    name, is_assignment, value = rule.lower().partition("=")
    if rule.startswith("-"):
        pattern = name_pattern(name[1:])
        return {name: value for name, value in limits.items() if not pattern.match(name)}
    if is_assignment:
        if name not in current:
            raise ValueError(f'Invalid rlimit "{name}"')
        return {**limits, name: _value(name, value)}
    pattern = name_pattern(name)
    taken = {name: value for name, value in current.items() if pattern.match(name)}
    if not taken:
        raise ValueError(f'No corresponding rlimit matching "{name}"')
    return {**limits, **taken}


def _value(name: str, text: str) -> int:
    if text in _INFINITE:
        return resource.RLIM_INFINITY
    if text.isascii() and text.isdigit():
        return int(text)
    raise ValueError(f"Invalid value in {name}={text}")
