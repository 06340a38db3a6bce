"""The pages of the judge: each rule's source beside the text of its clause."""

from __future__ import annotations

import inspect
import re

import pytest

from docs import make_changed
from docs.make_judge import pages, rule_files
from flux_trio.judge import load_clauses, load_unjudged
from flux_trio.judge.rules import ALL_RULES, CURRENT_RULES, ROUTED_RULES

CLAUSES = load_clauses()
FILES = rule_files()


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


def plain(text: str) -> str:
    """Markdown without the marks that keep it from seeing anything in a text."""
    return re.sub(r"\\(.)", r"\1", text)


def test_the_page_of_what_has_changed_is_up_to_date():
    page = make_changed.page()
    assert make_changed.PAGE.read_text(encoding="utf-8") == page, "python -m docs.make_changed"
    for id_, clause in CLAUSES.items():
        assert (f"| {id_} " in page) is bool(clause.newest or clause.kind == "current")


def test_every_rule_is_on_a_page_once():
    placed = [id_ for file in FILES for id_ in file.placed]
    current = [rule for rule in CURRENT_RULES if rule.is_current]
    others = {(rule.clause, rule.is_current) for rule in (*current, *ROUTED_RULES)}
    expected = [*(rule.clause for rule in ALL_RULES), *(clause for clause, _ in others)]
    assert sorted(placed) == sorted(expected)


def test_the_source_of_a_rule_comes_right_after_the_text_of_its_clause(made):
    nshown = 0
    for file in FILES:
        page = made[f"{file.name}.md"]
        for id_, source in file.placed.items():
            beside = page.partition(f"\n## {id_}\n")[2].partition("\n## ")[0]
            quoted, _, code = beside.partition("```python\n")
            assert id_ not in CLAUSES or CLAUSES[id_].text in plain(quoted), id_
            shared = code.startswith(source.strip()) or not code  # two clauses of one statement
            assert shared, id_
            nshown += bool(code)
    assert nshown > 200


def test_what_is_printed_is_the_code(made):
    """The function that judges, of rules that have one of their own, is on the page of its file."""
    names = {file.name for file in FILES}
    looked_at = 0
    for rule in ALL_RULES:
        judge = rule.judge or rule.by_trait or rule.each
        assert judge is not None
        name = judge.__module__.rpartition(".")[2]
        if name in names and "<locals>" not in judge.__qualname__:
            looked_at += 1
            assert inspect.getsource(judge).strip() in made[f"{name}.md"], rule.clause
    assert looked_at > 200


def test_clauses_that_no_rule_judges_are_there_with_the_reason(made):
    reasons = load_unjudged()
    assert reasons
    for id_, reason in reasons.items():
        assert CLAUSES[id_].text in plain(made["index.md"])
        assert reason in made["index.md"]


def test_links_between_the_pages_lead_somewhere(made):
    links = {link for page in made.values() for link in re.findall(r"\]\(([^)#]+\.md)", page)}
    assert links
    assert links <= made.keys()
