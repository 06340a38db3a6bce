"""RFC 35, with the operators of flux-core's commands."""

from __future__ import annotations

import pytest

from flux_trio.cli.submit.constraint_query import parse_constraint_query


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("foo", {"properties": ["foo"]}),
        ("foo bar", {"properties": ["foo", "bar"]}),
        ("foo,bar", {"properties": ["foo", "bar"]}),
        ("foo bar host:a1", {"and": [{"properties": ["foo", "bar"]}, {"hostlist": ["a1"]}]}),
        ("a|b|c", {"or": [{"properties": [name]} for name in "abc"]}),
        ("a or b || c", {"or": [{"properties": [name]} for name in "abc"]}),
        (
            "a|rank:0&c",
            {"or": [{"properties": ["a"]}, {"and": [{"ranks": ["0"]}, {"properties": ["c"]}]}]},
        ),
        (
            "(a|-b)&rank:1",
            {
                "and": [
                    {"or": [{"properties": ["a"]}, {"not": [{"properties": ["b"]}]}]},
                    {"ranks": ["1"]},
                ]
            },
        ),
        ("not (a or b)", {"not": [{"or": [{"properties": ["a"]}, {"properties": ["b"]}]}]}),
        ("-host:a[0-3]", {"not": [{"hostlist": ["a[0-3]"]}]}),
        ("foo:'this is args'", {"foo": ["this is args"]}),
        ('"a b"', {"properties": ["a b"]}),
        ("android not b", {"and": [{"properties": ["android"]}, {"not": [{"properties": ["b"]}]}]}),
        ("a-b", {"properties": ["a-b"]}),
        ("properties:a&properties:b", {"properties": ["a", "b"]}),
    ],
)
def test_a_query_is_an_rfc_31_constraint(text: str, constraint: object) -> None:
    assert parse_constraint_query(text) == constraint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a term, got 'the end' in ''"),
        ("  ", "expected a term"),
        ("a|", "expected a term, got 'the end' in 'a|'"),
        ("(a", "expected ')', got 'the end' in '(a'"),
        ("a)", "expected an operator, a term or the end, got ')' in 'a)'"),
        ("-(a|b)", "expected a term after '-', got '('"),
        ("host:", "expected an operand after 'host:'"),
        ("host:'a", "a quote is not closed"),
        ("(" * 100 + "a" + ")" * 100, "more than 64 levels"),
    ],
)
def test_what_is_no_query_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ValueError) as info:  # noqa: PT011 - the text is checked
        parse_constraint_query(text)
    assert message in str(info.value)
