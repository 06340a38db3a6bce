"""The configuration of perilog: `[job-manager.prolog]` and `[job-manager.epilog]`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from flux_trio.config import Config, PerilogConfig
from flux_trio.formats import FormatError, parse_duration

PROLOG_TIMEOUT: Final = "30m"  # an epilog has no limit by default
EMPTY_LINE: Final = r"^\s*$"  # never logged


@dataclass(frozen=True, slots=True)
class Procedure:
    """The command of a prolog or an epilog, and its limits in seconds; math.inf is no limit."""

    name: str
    command: tuple[str, ...]
    timeout: float
    kill_timeout: float
    per_rank: bool
    cancel_on_exception: bool

    @property
    def description(self) -> str:
        """The description in the events of a job."""
        return f"job-manager.{self.name}"

    def to_json(self) -> dict[str, object]:
        """Return the procedure as a query shows it; `timeout` 0 is no limit."""
        return {
            "command": list(self.command),
            "per_rank": self.per_rank,
            "cancel_on_exception": self.cancel_on_exception,
            "timeout": 0.0 if self.timeout == math.inf else self.timeout,
            "kill-timeout": self.kill_timeout,
        }


@dataclass(frozen=True, slots=True)
class Procedures:
    """The whole configuration."""

    prolog: Procedure | None = None
    epilog: Procedure | None = None
    ignored: tuple[re.Pattern[str], ...] = ()  # lines of output that are not logged

    def ignores(self, line: str) -> bool:
        """Return whether a line of output is not logged."""
        return any(pattern.search(line) for pattern in self.ignored)


def read_procedures(config: Config) -> Procedures:
    """Read the commands. Raises FormatError with the path of the key."""
    tables = config.job_manager
    patterns = []
    for index, text in enumerate((EMPTY_LINE, *tables.perilog.log_ignore)):
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            where = f"job-manager.perilog.log-ignore[{index - 1}]"
            raise FormatError(f"a regular expression ({error})", text, where) from None
    return Procedures(
        _procedure("prolog", tables.prolog, PROLOG_TIMEOUT, cancel_on_exception=True),
        _procedure("epilog", tables.epilog, "0", cancel_on_exception=False),
        tuple(patterns),
    )


def _procedure(
    name: str, table: PerilogConfig | None, timeout: str, *, cancel_on_exception: bool
) -> Procedure | None:
    if table is None or table.command is None:
        return None
    try:
        limit = parse_duration(table.timeout or timeout)
    except FormatError as error:
        raise error.at(f"job-manager.{name}.timeout") from None
    if table.cancel_on_exception is not None:
        cancel_on_exception = table.cancel_on_exception
    return Procedure(
        name,
        tuple(table.command),
        limit or math.inf,
        table.kill_timeout,
        table.per_rank,
        cancel_on_exception,
    )
