"""What a jobspec says of input that Flux's own programs send: its limit, how it is logged."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.exec.output import size_option
from flux_trio.cores.exec.placement import LayoutError
from flux_trio.editions import exec_requests, rfc24
from flux_trio.formats import FormatError, Jobspec, apply_update, format_size, value_at
from flux_trio.formats.meanings import JsonObject
from flux_trio.messages import Level

LIMIT_MAX: Final = 32 << 20
LIMIT: Final = 10 << 20
BATCH_S: Final = 0.5

_OPTIONS: Final = "system.shell.options"
_STDIN: Final = f"attributes.{_OPTIONS}.input.stdin"
_LIMIT: Final = f"{_OPTIONS}.input.limit"


class InputRules(msgspec.Struct, frozen=True):
    """How many bytes the tasks of a job may get, and how long data is collected for its log."""

    limit: int = LIMIT
    batch_s: float = BATCH_S


def input_rules(jobspec: Jobspec) -> InputRules:
    """Return what a jobspec says of the input that is logged. Raises FormatError, LayoutError."""
    nbytes = size_option(jobspec, _LIMIT, LIMIT)
    if not 0 < nbytes <= LIMIT_MAX:
        raise FormatError(f"1 to {format_size(LIMIT_MAX)} bytes", jobspec.attribute(_LIMIT), _LIMIT)
    batch_s = jobspec.attribute(f"{_OPTIONS}.input.batch-timeout")
    batch_s = BATCH_S if batch_s is None else batch_s
    if not isinstance(batch_s, int | float) or isinstance(batch_s, bool) or not batch_s >= 0:
        raise LayoutError(f"invalid input.batch-timeout option: expected seconds, got {batch_s!r}")
    return InputRules(nbytes, float(batch_s))


def with_input(jobspec: JsonObject) -> JsonObject:
    """Return the jobspec with flux-core's default: tasks read what commands send.

    A jobspec that has no room for it is returned as it is; the service says what is wrong with it.
    """
    try:
        if value_at(jobspec, _STDIN) is None:
            return apply_update(jobspec, _STDIN, exec_requests.stdin("service"))
    except FormatError:
        pass
    return jobspec


def input_remarks(verbose: object, rules: InputRules) -> list[rfc24.Message]:
    """Return what a job that takes input is told of it, if its option `verbose` asks for that.

    flux-core's programs show this level as DEBUG.
    """
    if not isinstance(verbose, int) or verbose < 1:
        return []
    return [rfc24.Message(int(Level.INFO), f"input batch timeout = {rules.batch_s:.3f}s")]
