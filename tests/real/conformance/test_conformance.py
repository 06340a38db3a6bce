"""What `make real-conformance` has found is what its page and the README say."""

from __future__ import annotations

from tests.real.conformance import page
from tests.real.conformance.results import Broken, Found, read
from tests.real.conformance.testees import KINDS, stories
from tests.real.innocent.kinds import ACTS


def test_the_stories_are_forty_kinds_and_have_every_act() -> None:
    kinds = [kind for _, each in stories() for kind in each]
    assert len(set(kinds)) == len(kinds) == KINDS
    assert {kind.act for kind in kinds} == set(ACTS)


def test_the_page_and_the_readme_are_made_of_the_results() -> None:
    results = read()
    assert page.PAGE.read_text(encoding="utf-8") == page.page(results)
    readme = page.README.read_text(encoding="utf-8")
    assert f"{page.BEGIN}{page.table(results)}{page.END}" in readme


def test_each_clause_is_counted_once_and_what_was_broken_once_is_not_kept() -> None:
    for found in page.parties(read()).values():
        kept, broken, nothing = found.counts
        assert kept + broken + nothing == len(found.all) > 0
        assert not found.kept & found.clauses_broken
    found = Found(kept={"a", "b"}, all={"a", "b", "c"})
    found.add(Found(broken=[Broken("a", 1, "as it says")]))
    assert found.counts == (1, 1, 1)


def test_what_is_known_of_a_clause_hides_no_other_fault_of_it() -> None:
    known, other = Broken("a", 1, "as always", "It does so."), Broken("a", 1, "as never before")
    found = Found(all={"a"})
    for each in (known, other, known):
        found.add(Found(broken=[each], all={"a"}))
    assert found.counts == (0, 1, 0)
    assert [(each.text, each.count) for each in found.broken] == [(known.text, 2), (other.text, 1)]
