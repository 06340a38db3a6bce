"""The lines that `flux module trace` prints, as one value for each message.

For each message that a module sent to the broker (`tx`) or received from it (`rx`) there is a line,
then its payload as indented JSON, or the text of its error. A payload that is no JSON object is not
printed. Times are local times without a zone (`zones`).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.formats import LESS_DEEP, FormatError
from flux_trio.messages import Errno

HEADER: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:)(\d\d\.\d{3}) +(\S+) (tx|rx) ([><ec]) (.*) "
    r"\[([\d.]+)([KMGTPE]?)\](?: (success|E\w+|errno \d+))?"
)
FORM: Final = "YYYY-MM-DDTHH:MM:SS.mmm MODULE tx|rx >|<|e|c TOPIC [SIZE]"
HUMAN: Final = re.compile(r"(?:\x1b|\[).* (?:tx|rx) [><ec] .*", re.DOTALL)
"""A line that `--human` or `--color` has changed."""
_GAP: Final = re.compile(r"\(\d+ messages are missing here: .*\)")
TYPES: Final = {">": "request", "<": "response", "e": "event", "c": "control"}


class Line(NamedTuple):
    """One message as one module saw it; `body` is its payload as it is printed."""

    t: float
    module: str
    is_sent: bool
    type: str
    topic: str
    is_empty: bool
    errnum: int
    body: str
    number: int

    @property
    def content(self) -> tuple[str, str, int, str]:
        """What both ends of a message show."""
        return self.type, self.topic, self.errnum, self.body

    @property
    def payload(self) -> Any:
        """Return the object, the text of the error, or None."""
        return (self.body or None) if self.errnum else _payload(self.body, self.number)


def is_module_trace(line: str) -> bool:
    """Whether `line` is the first of such a trace. Raises FormatError for other forms of it."""
    if HUMAN.match(line):
        wanted = "`flux module trace --full` without --human and --color"
        raise FormatError(wanted, line.rstrip(), "line 1")
    return HEADER.fullmatch(line.rstrip()) is not None


def parse_lines(lines: Iterable[str], cut: Callable[[int], object]) -> Iterator[Line]:
    """Yield the messages. FormatError names the line and what was expected.

    A last message that is incomplete is left out, and `cut` is called with the number of its line.
    """
    head: re.Match[str] | None = None
    minutes = _Minutes()
    at, body = 0, list[str]()
    is_cut = False
    for number, line in enumerate(lines, 1):
        if line[0] == " " and head is not None and line[-1] == "\n":
            body.append(line)  # nearly every line is one of a payload
            continue
        if not line.endswith("\n"):
            is_cut = True
            cut(number)
            break
        match = HEADER.fullmatch(line.rstrip()) if line[:1].isdigit() else None
        if match is None:
            if _GAP.match(line):
                raise FormatError("a trace without gaps", line.rstrip(), f"line {number}")
            if head is None and line.strip():
                raise FormatError(FORM, line.rstrip(), f"line {number}")
            body.append(line)
            continue
        if head is not None:
            yield _line(minutes, head, body, at)
        head, at, body = match, number, []
    if head is None:
        return
    last = _line(minutes, head, body, at)
    if _is_whole(last):
        yield last
    elif not is_cut:
        cut(number)


def _is_whole(last: Line) -> bool:
    """Whether the last message of a trace was surely printed to its end."""
    body = last.body
    if last.errnum or last.is_empty:
        return True
    return body.endswith("\n}") or (bool(body) and "\n" not in body and body != "{")


def _line(minutes: _Minutes, head: re.Match[str], body: Sequence[str], number: int) -> Line:
    minute, second, module, way, mark, topic, size, _, result = head.groups()
    t = minutes.of(minute) + float(second)
    errnum = 0 if result is None or result == "success" else _errnum(result, number)
    text = "".join(body).strip()
    return Line(t, module, way == "tx", TYPES[mark], topic, size == "0", errnum, text, number)


def _payload(text: str, number: int) -> Any:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        expected = "a JSON object, or the next message"
    except RecursionError:
        expected = LESS_DEEP
    raise FormatError(expected, text, f"line {number + 1}")


def _errnum(result: str, number: int) -> int:
    if result.startswith("errno "):
        return int(result.removeprefix("errno "))
    found = Errno.__members__.get(result, getattr(errno, result, None))
    if found is None:
        raise FormatError("success or the name of an error", result, f"line {number}")
    return int(found)


class _Minutes:
    """The seconds since the epoch of a date with hour and minute; the last one is remembered."""

    def __init__(self) -> None:
        self._text = ""
        self._t = 0

    def of(self, text: str) -> int:
        if text != self._text:
            day, time = text[:10].split("-"), text[11:16].split(":")
            days = _days(*map(int, day))
            self._text, self._t = text, days * 86400 + int(time[0]) * 3600 + int(time[1]) * 60
        return self._t


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the Gregorian calendar; years begin in March here."""
    year -= month < 3
    month = (month + 9) % 12
    return (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    )


def date_of(t: float) -> str:
    """Return a time in the form that these lines have."""
    ms = round(t * 1000)
    days, ms = divmod(ms, 86_400_000)
    year = 1970 + days // 366  # no later than it is
    while _days(year + 1, 1, 1) <= days:
        year += 1
    month = 12
    while _days(year, month, 1) > days:
        month -= 1
    day = days - _days(year, month, 1) + 1
    seconds, ms = divmod(ms, 1000)
    hour, second = divmod(seconds, 3600)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{second // 60:02}:{second % 60:02}.{ms:03}"
