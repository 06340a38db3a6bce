"""Shell options of flux-core for a job's end: exit rules, and a warning of the time limit. Pure.

When one task has exited and others still run, the job gets a fatal exception: after `exit-timeout`
(an FSD or seconds, 30 s by default; "none": never), or at once with `exit-on-error` if that task
has failed. The job's status is then that of its first task.

The option `signal` is `{"signum": 10, "timeleft": 60}`; these are the defaults. The number 1 stands
for both defaults, 0 for no warning.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, NamedTuple

import msgspec

from flux_trio.cores.exec.vocabulary import SIGUSR1
from flux_trio.editions.job_requests import SIGNUM_MAX
from flux_trio.formats import FormatError, Jobspec, converted, format_duration, parse_duration
from flux_trio.shell.protocol import FirstExit

EXIT_TIMEOUT: Final = "system.shell.options.exit-timeout"
EXIT_ON_ERROR: Final = "system.shell.options.exit-on-error"
TIMEOUT_S: Final = 30.0


class ExitRules(msgspec.Struct, frozen=True):
    """When a job fails after its first task has exited: `timeout_s` later (inf: never)."""

    timeout_s: float = math.inf
    on_error: bool = False

    def delay(self, status: int) -> float:
        """Return after how many seconds a job fails whose first task has this wait(2) status."""
        return 0.0 if self.on_error and status else self.timeout_s


def exit_rules_of(jobspec: Jobspec) -> ExitRules:
    """Return the rules that a jobspec asks for. Raises FormatError."""
    on_error = jobspec.attribute(EXIT_ON_ERROR) is not None
    value = jobspec.attribute(EXIT_TIMEOUT)
    if value is None:
        return ExitRules(TIMEOUT_S, on_error)
    if isinstance(value, str) and value.lower() == "none":
        return ExitRules(math.inf, on_error)
    if not isinstance(value, str | int | float):
        raise FormatError('a duration or "none"', value, EXIT_TIMEOUT)
    try:
        return ExitRules(parse_duration(value), on_error)
    except FormatError as error:
        raise FormatError(f'{error.expected}, or "none"', value, EXIT_TIMEOUT) from None


def exit_note(rules: ExitRules, notice: FirstExit, command: str, host: str) -> str:
    """Return the note of the exception; the words are flux-core's."""
    how = f" ({notice.how})" if notice.how else ""
    task = f"{command.rpartition('/')[2]}: task rank {notice.taskid} on host {host}"
    if rules.on_error and notice.status:
        return f"{task} failed{how} and exit-on-error is set"
    limit = format_duration(rules.timeout_s)
    return f"{task} exited{how} and exit-timeout={limit} has expired"


# --- the warning

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
    option = _Option() if isinstance(value, int) else converted(value, _Option, SIGNAL_OPTION)
    try:
        before_s = parse_duration(option.timeleft)
    except FormatError as error:
        raise error.at(f"{SIGNAL_OPTION}.timeleft") from None
    return WarningSignal(option.signum, before_s) if before_s else None
