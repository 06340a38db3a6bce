from __future__ import annotations

import math
from operator import itemgetter

import pytest

from flux_trio.cli.terminal.columns import Field, Layout, read_sort_keys, short_duration, sort_rows
from flux_trio.cli.terminal.errors import CommandError

FIELDS = {
    name: Field(heading, itemgetter(name))
    for name, heading in {
        "id": "JOBID",
        "name": "NAME",
        "n": "NTASKS",
        "t": "TIME",
        "a.b": "AB",
    }.items()
}


def lines(text: str, *rows: dict[str, object], header: bool = True) -> list[str]:
    return list(Layout(text, FIELDS).lines(rows, header=header))


def cell(text: str, value: object) -> str:
    return lines(f"[{text}]", {"name": value, "t": value}, header=False)[0]


def test_fields_are_padded_and_headings_too() -> None:
    assert lines("{id:>6} {name:<6}|", {"id": "f1", "name": "x"}) == [
        " JOBID NAME  |",
        "    f1 x     |",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{{literal}}", ["{literal}", "{literal}"]),
        ("{{literal}} {id}", ["{literal} JOBID", "{literal} f1"]),
        ("{id}{{{name}}}", ["JOBID{NAME}", "f1{x}"]),
        ("{{?:{id}}}", ["{JOBID}", "{f1}"]),
    ],
)
def test_braces_that_are_doubled_are_shown(text: str, shown: list[str]) -> None:
    assert lines(text, {"id": "f1", "name": "x"}) == shown


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("{name:<6.3}", "abcdef", "[abc   ]"),
        ("{name:<6.3+}", "abcdef", "[ab+   ]"),
        ("{name:<6.3+}", "abc", "[abc   ]"),
        ("{name:>4h}", "", "[   -]"),
        ("{t:>4h}", 0, "[   0]"),
        ("{t!F:h}", 0.0, "[-]"),
        ("{t!F}", 90.0, "[1.5m]"),
        ("{t!F}", "", "[]"),
        ("{t!H}", 3661, "[1:01:01]"),
        ("{t!H}", 0.2, "[0:00:01]"),
        ("{t!H}", 1e308, "[1.157e+303d]"),
        ("{t!H}", math.inf, "[inf]"),
        ("{t!D}", 1e308, "[9999-12-31T00:00:00]"),
        ("{t!D}", 0.0, "[]"),
        ("{t!d:%Y::>6}", 200_000_000.0, "[  1976]"),
        ("{t!d:%Y::>6h}", 0.0, "[     -]"),
        ("{t:.2f}", 1.234, "[1.23]"),
        ("{t:>7.2f}", "", "[       ]"),
        ("{t!P:>5}", 0.5, "[  50%]"),
        ("{t!P}", 0.015, "[1.5%]"),
        ("{t!P}", 0.0005, "[.05%]"),
        ("{t!P}", 1, "[100%]"),
        ("{t!P}", 0, "[0%]"),
        ("{name:^5}", "x", "[  x  ]"),
        ("{name:*>3}", "x", "[**x]"),
        ("{t:05d}", 2, "[00002]"),
        ("{t:+d}", 2, "[+2]"),
        ("{t:#x}", 12, "[0xc]"),
        ("{t:,}", 12345, "[12,345]"),
        ("{t:010.2f}", 1.5, "[0000001.50]"),
        ("{t:5}", 2, "[    2]"),
        ("{t:05}", -2, "[-0002]"),
        ("{t:_=5d}", -2, "[-___2]"),
        ("{t:_^5d}", 2, "[__2__]"),
        ("{t:<5d}", 2, "[2    ]"),
        ("{t:.3}", 1234.5, "[1.23e+03]"),
        ("{t:d}", True, "[1]"),
        ("{t}", True, "[True]"),
        ("{t:05d}", "", "[     ]"),  # a value that is not known
        ("{name:5}", "x", "[x    ]"),
        ("{name:s}", "x", "[x]"),
        ("{name!r}", "x", "['x']"),
        ("{name!s:>3}", "x", "[  x]"),
        ("{name}", {"a": {"b": None}, "c": [1, "x"]}, '[{"a": {"b": null}, "c": [1, "x"]}]'),
        ("{name}", ["é"], r'[["\u00e9"]]'),
    ],
)
def test_a_value_is_shown_as_its_format_says(text: str, value: object, shown: str) -> None:
    assert cell(text, value) == shown


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ("{name:d}", "x", "Unknown format code 'd' for object of type 'str'"),
        ("{name:s}", 2, "Unknown format code 's' for object of type 'int'"),
    ],
)
def test_a_format_for_another_type_is_refused(text: str, value: object, problem: str) -> None:
    with pytest.raises(CommandError) as info:
        cell(text, value)
    assert str(info.value) == f"Invalid format of field name: {problem}"


def test_a_column_marked_so_is_left_out_when_it_is_empty() -> None:
    text = "{id} ?:{name:<4} {n}"
    assert lines(text, {"id": 1, "name": "", "n": 2}) == ["JOBID NTASKS", "1 2"]
    assert lines(text, {"id": 1, "name": "", "n": 2}, {"id": 1, "name": "x", "n": 2}) == [
        "JOBID NAME NTASKS",
        "1      2",
        "1 x    2",
    ]


def test_a_column_marked_so_is_as_wide_as_it_must() -> None:
    assert lines("+:{name:<5.5} {n}", {"name": "abcdefg", "n": 1}, {"name": "b", "n": 2}) == [
        "NAME    NTASKS",
        "abcdefg 1",
        "b       2",
    ]
    assert lines("?+:{name:>2}", {"name": "abc"}) == ["NAME", " abc"]
    assert lines("?+:{name:>2}|", {"name": ""}) == ["|", "|"]


def test_there_is_a_header_without_rows() -> None:
    assert lines("{id:>6} {name}") == [" JOBID NAME"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{nosuch}", "Unknown format field: nosuch"),
        ("{}", "Unknown format field: "),
        ("{id!x}", "Unknown conversion !x of field id"),
        ("{id:>>>}", "Invalid format '>>>' of field id"),
        ("{id", "expected '}' before end of string"),
        ("id}", "Single '}' encountered"),
    ],
)
def test_a_format_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(CommandError) as info:
        Layout(text, FIELDS)
    assert message in str(info.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (0.0114, "0.011s"),
        (9.5, "9.500s"),
        (59.96, "59.96s"),
        (90, "1.5m"),
        (5400, "1.5h"),
        (90000, "1.042d"),
        (math.inf, "inf"),
    ],
)
def test_durations_are_as_flux_prints_them(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


def test_rows_are_sorted_by_several_fields() -> None:
    rows = [{"id": 1, "n": 2}, {"id": 2, "n": ""}, {"id": 3, "n": "x"}, {"id": 4, "n": 2}]
    sort_rows(rows, ("n", "-id"))
    assert [row["id"] for row in rows] == [2, 4, 1, 3]
    sort_rows(rows, ("-n",))
    assert [row["id"] for row in rows] == [3, 4, 1, 2]


def test_a_format_may_say_the_order() -> None:
    layout = Layout("sort:n,-id {id}", FIELDS)
    assert layout.sort_keys == ("n", "-id")
    assert list(layout.lines([{"id": 7}])) == ["JOBID", "7"]
    with pytest.raises(CommandError, match="Invalid sort key: -nosuch"):
        read_sort_keys("n,-nosuch", FIELDS)
