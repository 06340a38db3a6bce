"""The page is one text: data cannot leave their element, its policy allows its own script alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.judge import load_clauses
from flux_trio.views.viewer import Broken, Data, Row, live_page, viewer_page

ELEMENT = re.compile(r'<script id="page" type="application/json">(.*?)</script>', re.DOTALL)


def page_of(text: str) -> str:
    row = Row(n=1, t=0.0, kind="send", party=text, text=text, body=text, clauses=(text,))
    broken = Broken(text, text, text, 1, [])
    return viewer_page(text, [], Data(rows=[row], violations=[broken], clauses={text: text}))


HOSTILE = ("<", ">", "&", "\u2028", "\u2029", "<!--<script ", "</script ", "]]>", "\\u003c", '"')


@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=3), max_size=5).map("".join))
def test_data_come_back_and_have_no_markup(text: str) -> None:
    found = ELEMENT.findall(page_of(text))
    assert len(found) == 1
    assert not re.search("[<>&\u2028\u2029]", found[0])
    held = json.loads(found[0])
    assert held["rows"][0]["party"] == held["violations"][0]["text"] == text
    assert held["clauses"] == {text: text}
    assert held["clause_sets"] == [[text]]
    assert held["rows"][0]["clauses"] == 0


def test_rows_with_the_same_clauses_share_their_list() -> None:
    rows = [Row(n=n, t=0.0, kind="x", party="x", clauses=ids) for n, ids in enumerate(
        [("a", "b"), (), ("c",), ("a", "b")], 1)]  # fmt: skip
    held = json.loads(ELEMENT.findall(viewer_page("", [], Data(rows=rows)))[0])
    assert held["clause_sets"] == [["a", "b"], ["c"]]
    assert [row.get("clauses") for row in held["rows"]] == [0, None, 1, 0]


@pytest.mark.parametrize(
    "page", [page_of("x"), live_page("x", load_clauses(), [], ["6.response.1"])[0]]
)
def test_policy_allows_this_script_and_style_alone(page: str) -> None:
    policies = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert len(policies) == 1
    rules = dict(rule.split(" ", 1) for rule in policies[0].split("; "))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == digest(script)
    assert rules["style-src"] == digest(style)
    assert rules["connect-src"] == ("'self'" if '"live":true' in page else "'none'")
    assert not re.search(r"""(src|href|url)\s*[=(]["']?(https?:)?//""", page)


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
