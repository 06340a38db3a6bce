"""RFC 26, on command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import FormatError, parse_dependency_uri


@pytest.mark.parametrize(
    ("uri", "dependency"),
    [
        # the RFC's examples
        ("afterany:ƒ2oLkTLb", {"scheme": "afterany", "value": "ƒ2oLkTLb"}),
        ("string:foo?type=out", {"scheme": "string", "value": "foo", "type": "out"}),
        (
            "fluid:hungry-hippos-white-elephant",
            {"scheme": "fluid", "value": "hungry-hippos-white-elephant"},
        ),
        ("string:foo?type=in&scope=user", {"type": "in", "scope": "user"}),
        ("string:foo?type=in;scope=user", {"type": "in", "scope": "user"}),
        ("singleton", {"scheme": "singleton", "value": ""}),
        ("singleton:", {"scheme": "singleton", "value": ""}),
        ("begin-time:1000.5", {"scheme": "begin-time", "value": "1000.5"}),
        ("a:b:c", {"scheme": "a", "value": "b:c"}),
        ("x:1?n=3&f=1.5&t=007&e=", {"n": 3, "f": 1.5, "t": "007", "e": ""}),
        ("x:1?a=b%26c&d=1&d=2", {"a": "b&c", "d": [1, 2]}),
    ],
)
def test_uri_form_is_translated_to_the_object_form(uri: str, dependency: dict[str, object]) -> None:
    """26.format.5"""
    made = parse_dependency_uri(uri)
    assert {key: made.get(key) for key in dependency} == dependency
    assert len(made) == len(dependency | {"scheme": 0, "value": 0})


@pytest.mark.parametrize("uri", ["", ":x", "1after:3", "after any:3", "x:1?type", "x:1?value=2"])
def test_what_is_no_dependency_is_refused_with_itself(uri: str) -> None:
    with pytest.raises(FormatError, match="expected") as caught:
        parse_dependency_uri(uri)
    assert caught.value.got == f'"{uri}"'


@given(
    st.from_regex(r"[a-z][a-z0-9+.-]{0,9}", fullmatch=True),
    st.text(st.characters(blacklist_characters="?", blacklist_categories=("Cs", "Cc"))),
)
def test_scheme_and_value_come_back_as_they_were(scheme: str, value: str) -> None:
    made = parse_dependency_uri(f"{scheme}:{value}")
    assert made == {"scheme": scheme, "value": value}
