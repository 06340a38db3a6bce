"""Rows of text from a format string, as in the option `-o` of Flux's commands (flux-jobs(1)).

A format is a Python format string with more conversions: `!F` (duration), `!H`
(hours:minutes:seconds), `!D` (ISO time), `!d:TIME::` (strftime) and `!P` (percentage). The suffix
`h` shows a hyphen for an empty value, `+` a plus where text was cut. The prefix `?:` drops the
column if all its values are empty, `+:` makes it as wide as its longest value. The prefix
`sort:FIELD,-FIELD,... ` sorts the rows. Objects and arrays are shown as JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from string import Formatter
from typing import Any, Final, NamedTuple

import click

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.shown_values import local_time
from flux_trio.formats import printable

_SPEC: Final = re.compile(  # Python's format specification, then Flux's suffixes
    r"(?P<align>(?:.?[<>=^])?)(?P<sign>[-+ ]?z?#?)(?P<zero>0?)(?P<width>\d*)(?P<group>[_,]?)"
    r"(?P<point>(?:\.(?P<cut>\d+))?)(?P<type>[bcdeEfFgGnosxX%]?)(?P<hyphen>h?)(?P<plus>\+?)"
)
_NOTHING: Final = ("", "0s", "0.0", "0:00:00")
_MARKS: Final = ("?+:", "?:", "+:")
_CONVERSIONS: Final = "FHDdPrsa"
_NUMBERS: Final = (int, float)
_SORT: Final = re.compile(r"sort:(?P<keys>\S*)\s*")

Row = Mapping[str, object]


class Field(NamedTuple):
    """A field of a listing: its heading, and its value in what a row is about."""

    heading: str
    value: Callable[[Any], object]


Fields = Mapping[str, Field]


class FieldsRow(Row):
    """The row of `item` in a listing: the values of `fields`, computed when they are asked for."""

    def __init__(self, fields: Fields, item: Any) -> None:
        self._fields = fields
        self._item = item

    def __getitem__(self, field: str) -> object:
        return self._fields[field].value(self._item)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class Cell(NamedTuple):
    """The text of a value, and how it is aligned."""

    text: str
    align: str


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a format and the text before it."""

    before: str
    field: str
    heading: str
    conversion: str
    time_format: str  # for the conversion `d`
    align: str
    width: int
    cut: int | None  # maximum characters of a text
    number: str  # the specification for a number; with the width if it is filled after the sign
    type: str
    hyphen: bool
    plus: bool
    drops: bool  # the column is dropped if it is empty in all rows
    widens: bool

    def cell(self, value: object) -> Cell:
        """Return a value as text. Raises CommandError if the format is for another type."""
        shown = _converted(value, self.conversion, self.time_format)
        is_number = isinstance(shown, (int, float))
        if is_number and self.number and not (isinstance(shown, int) and self._only_cuts):
            return Cell(self._formatted(shown), self.align or ">")
        if not is_number and self.type not in ("", "s") and shown != "":
            self._formatted(str(shown))
        # a job's id is a number with a text of its own; True is aligned as a text, too
        return Cell(self._text(shown), self.align or (">" if type(shown) in _NUMBERS else "<"))

    @property
    def _only_cuts(self) -> bool:
        return self.number.startswith(".") and not self.type

    def _formatted(self, value: object) -> str:
        try:
            return format(value, self.number)
        except (ValueError, OverflowError) as error:
            raise CommandError(f"Invalid format of field {self.field}: {error}") from None

    def _text(self, shown: object) -> str:
        if isinstance(shown, (dict, list)):
            shown = json.dumps(shown)
        text = printable(str(shown))
        if self.hyphen and text in _NOTHING:
            return "-"
        if self.cut is not None and len(text) > self.cut and not self.widens:
            return f"{text[: self.cut - 1]}+" if self.plus else text[: self.cut]
        return text

    def padded(self, text: str, align: str) -> str:
        align = f"{align[:-1]}>" if align.endswith("=") else align  # texts have no sign
        return f"{text:{align}{self.width or ''}}"


class Layout:
    """A parsed format; `fields` are the fields of the listing."""

    def __init__(self, text: str, fields: Fields) -> None:
        """Raises CommandError if the format cannot be read or names an unknown field."""
        self._columns = []
        self._after = ""
        self.sort_keys: tuple[str, ...] = ()
        if prefix := _SORT.match(text):
            self.sort_keys = read_sort_keys(prefix["keys"], fields)
            text = text[prefix.end() :]
        for before, field, spec, conversion in _parsed(text):
            self._after += before  # {{ and }} end a piece of text, too
            if field is not None:
                column = _column(self._after, field, spec or "", conversion, fields)
                self._columns.append(column)
                self._after = ""

    def lines(self, rows: Sequence[Row], *, header: bool = True) -> Iterator[str]:
        """Yield the header, then one line per row, without newlines or trailing blanks."""
        columns, cells = self._fit(rows)
        if header:
            yield self._line(columns, [Cell(column.heading, column.align) for column in columns])
        for index in range(len(rows)):
            yield self._line(columns, [each[index] for each in cells])

    def print(self, rows: list[Any], *, header: bool = True) -> None:
        """Print the rows, sorted as the format says."""
        sort_rows(rows, self.sort_keys)
        for line in self.lines(rows, header=header):
            click.echo(line)

    def fitted(self, rows: Sequence[Row]) -> Layout:
        """Return this layout with the columns and widths that these rows have, for more rows."""
        fitted = copy(self)
        columns, _ = self._fit(rows)
        fitted._columns = [replace(column, drops=False, widens=False) for column in columns]
        return fitted

    def _fit(self, rows: Sequence[Row]) -> tuple[list[Column], list[list[Cell]]]:
        """Return the columns that are shown, with their final widths, and the cells of each."""
        columns = []
        cells = []
        for column in self._columns:
            column_cells = [column.cell(row[column.field]) for row in rows]
            texts = [each.text for each in column_cells]
            if column.drops and all(text in (*_NOTHING, "0", "-") for text in texts):
                continue
            if column.widens:
                width = max([column.width, *map(len, texts), len(column.heading)])
                column = replace(column, width=width)
            columns.append(column)
            cells.append(column_cells)
        return columns, cells

    @property
    def fields(self) -> list[str]:
        """The names of the fields of the format."""
        return [column.field for column in self._columns]

    def _line(self, columns: list[Column], cells: Sequence[Cell]) -> str:
        parts = [
            column.before + column.padded(*cell)
            for column, cell in zip(columns, cells, strict=True)
        ]
        return ("".join(parts) + self._after).rstrip()


def read_sort_keys(text: str, fields: Fields) -> tuple[str, ...]:
    """Return the sort keys, the most significant first; `-` means descending.

    Raises CommandError.
    """
    keys = tuple(text.split(","))
    for key in keys:
        if key.removeprefix("-") not in fields:
            raise CommandError(f"Invalid sort key: {key}")
    return keys


def sort_rows(rows: list[Any], keys: Sequence[str]) -> None:
    """Sort rows in place: empty values first, then numbers, then texts."""
    for key in reversed(keys):
        field = key.removeprefix("-")
        rows.sort(key=lambda row: _sort_key(row[field]), reverse=key.startswith("-"))


def _sort_key(value: object) -> tuple[int, Any]:
    if value is None or value == "":
        return 0, 0
    if isinstance(value, (int, float)):
        return 1, value
    return 2, str(value)


def short_duration(seconds: float) -> str:
    """Return a duration with four digits in the largest unit that fits, as Flux prints it."""
    if math.isinf(seconds):
        return "inf"
    for below, scale, form in (
        (1e-3, math.inf, "0s"),
        (10.0, 1.0, "{:.03f}s"),
        (60.0, 1.0, "{:.4g}s"),
        (3600.0, 60.0, "{:.4g}m"),
        (86400.0, 3600.0, "{:.4g}h"),
    ):
        if seconds < below:
            return form.format(seconds / scale)
    return f"{seconds / 86400.0:.4g}d"


def _parsed(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(text))
    except ValueError as error:
        raise CommandError(str(error)) from None


def _column(before: str, field: str, spec: str, conversion: str | None, fields: Fields) -> Column:
    if field not in fields:
        raise CommandError(f"Unknown format field: {field}")
    if conversion and conversion not in _CONVERSIONS:
        raise CommandError(f"Unknown conversion !{conversion} of field {field}")
    time_format = ""
    if conversion == "d":
        time_format, _, spec = spec.partition("::")
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise CommandError(f"Invalid format {spec!r} of field {field}")
    sign = match["sign"]
    if match["zero"] or match["align"].endswith("="):  # it is filled after the sign
        sign = f"{match['align']}{sign}{match['zero']}{match['width']}"
    mark = next((mark for mark in _MARKS if before.endswith(mark)), "")
    return Column(
        before.removesuffix(mark),
        field,
        fields[field].heading,
        conversion or "",
        time_format,
        match["align"],
        int(match["width"] or 0),
        int(match["cut"]) if match["cut"] else None,
        f"{sign}{match['group']}{match['point']}{match['type']}",
        match["type"],
        bool(match["hyphen"]),
        bool(match["plus"]),
        "?" in mark,
        "+" in mark,
    )


def _hours(seconds: float) -> str:
    """Return days, hours:minutes:seconds; short_duration if that is more than timedelta holds."""
    if abs(seconds) >= timedelta.max.total_seconds():
        return short_duration(seconds)
    return str(timedelta(seconds=round(seconds if not 0 < seconds < 1 else 1)))


def _percentage(value: float) -> str:
    """Return a fraction in at most five characters: 100%, 50%, 1.5%, .05%."""
    percent = value * 100
    digits = 0 if percent >= 10 or percent == int(percent) else 1 if percent >= 1 else 2
    return f"{percent:.{digits}f}%".replace("0.", ".", 1 if digits == 2 else 0)


def _converted(value: object, conversion: str, time_format: str) -> object:
    if conversion in ("r", "s", "a"):  # those of Python
        return Formatter().convert_field(value, conversion)
    if not conversion or not isinstance(value, (int, float)):
        return value
    match conversion:
        case "F":
            return short_duration(value)
        case "H":
            return _hours(value)
        case "P":
            return _percentage(value)
        case _ if not value:
            return ""
        case "D":
            return local_time(value).strftime("%FT%T")
        case _:
            return local_time(value).strftime(time_format or "%FT%T")
