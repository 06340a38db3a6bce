"""The signal that warns a job of its time limit: the shell option `signal` of flux-core. Pure.

The option is `{"signum": 10, "timeleft": 60}`; these are the defaults. The number 1 stands for both
defaults, 0 for no warning.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from flux_trio.cores.exec.vocabulary import SIGUSR1
from flux_trio.editions.job_requests import SIGNUM_MAX
from flux_trio.formats import FormatError, Jobspec, parse_duration

SIGNAL_OPTION: Final = "system.shell.options.signal"
BEFORE_S: Final = 60.0


class WarningSignal(NamedTuple):
    """Send `signum`, `before_s` seconds before the time limit."""

    signum: int
    before_s: float


class _Option(msgspec.Struct):
    signum: Annotated[int, msgspec.Meta(ge=1, le=SIGNUM_MAX)] = SIGUSR1
    timeleft: str | float = BEFORE_S


def warning_of(jobspec: Jobspec) -> WarningSignal | None:
    """Return the warning that a jobspec asks for, None for no warning. Raises FormatError."""
    value = jobspec.attribute(SIGNAL_OPTION)
    if value is None or (isinstance(value, int) and not value):
        return None
    try:
        option = _Option() if isinstance(value, int) else msgspec.convert(value, _Option)
        before_s = parse_duration(option.timeleft)
    except msgspec.ValidationError as error:
        raise FormatError.of_msgspec(error).at(SIGNAL_OPTION) from None
    except FormatError as error:
        raise error.at(f"{SIGNAL_OPTION}.timeleft") from None
    return WarningSignal(option.signum, before_s) if before_s else None
