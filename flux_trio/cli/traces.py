"""Files with traces, as the commands read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flux_trio.cli.errors import CommandError

if TYPE_CHECKING:
    from flux_trio.trace import Source

UNREADABLE: Final = 2


class Unreadable(CommandError):
    """The file is not a trace that can be read."""

    exit_code = UNREADABLE


@contextmanager
def opened(trace: Path) -> Iterator[Source]:
    """Yield the trace of a file. Errors of the file, also of its records, become Unreadable."""
    from flux_trio.formats import FormatError
    from flux_trio.trace import read_trace

    try:
        with trace.open(encoding="utf-8") as lines:
            yield read_trace(lines)
    except OSError as error:
        raise Unreadable(f"{trace}: {error.strerror}") from None
    except (FormatError, UnicodeError) as error:
        raise Unreadable(f"{trace}: {error}") from None


def write_report(output: Path, text: str) -> None:
    """Write a report. Raises Unreadable if the file cannot be written."""
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{output}: {error.strerror}") from None
