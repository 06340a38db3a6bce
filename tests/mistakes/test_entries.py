"""Each planted mistake can be planted, and they are enough of each kind."""

from __future__ import annotations

import pytest

from flux_trio.judge import load_clauses
from tests.mistakes.entries import Mistake, mistakes
from tests.mistakes.survivors import WOULD_FIND

ALL = list(mistakes())


@pytest.mark.parametrize("mistake", ALL, ids=lambda each: each.id)
def test_mistake_is_planted_at_one_place_and_the_module_compiles(mistake: Mistake) -> None:
    for file, text in mistake.edited().items():
        compile(text, file, "exec")


def test_mistakes_have_ids_of_their_own() -> None:
    assert len({each.id for each in ALL}) == len(ALL)


def test_what_would_find_a_mistake_is_said_of_mistakes() -> None:
    assert WOULD_FIND.keys() <= {each.id for each in ALL}


def test_source_is_a_public_bug_a_clause_a_bug_of_this_program_or_usual() -> None:
    clauses = load_clauses()
    others = [each.source for each in ALL if not each.is_public]
    known = ("our own: ", "usual: ")
    assert [each for each in others if each not in clauses and not each.startswith(known)] == []


def test_there_are_enough_of_each_kind() -> None:
    assert len(ALL) >= 80
    assert len([each for each in ALL if each.needs]) >= 40
    assert len([each for each in ALL if each.is_public]) >= 30
