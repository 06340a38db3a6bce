"""The registry as a file that must be right, and what its reader refuses."""

import re
from collections import Counter

import pytest

from flux_trio.formats import FormatError
from flux_trio.judge import load_clauses, load_unjudged, parse_clauses, parse_reasons, select
from tests.support.clause_status import load_reasons

CLAUSE = {
    "id": "27.alloc.1",
    "rfc": "27",
    "kind": "classic",
    "section": "Alloc",
    "level": "SHALL",
    "actor": "job-manager",
    "text": "Something is so.",
    "observable": "trace",
    "trigger": "always",
    "violation": "it is otherwise",
    "src": "L1",
}


WRONG = [
    ({"level": "SHOULD NEVER"}, "SHOULD NEVER"),
    ({"actor": "schedular"}, "schedular"),
    ({"observable": "sight"}, "sight"),
    ({"kind": "modern"}, "modern"),
    ({"breadth": "wide"}, "wide"),
    ({"newest": "renamed"}, "renamed"),
    ({"trigger": ""}, "trigger"),
    ({"trigger": None}, "trigger"),
    ({"coment": "x"}, "coment"),
    ({"id": "28.alloc.1"}, "28.alloc.1"),
    ({"id": "27.alloc"}, "27.alloc"),
    ({"id": "27.alloc.01"}, "27.alloc.01"),
]


def toml(**changed: str | None) -> str:
    keys = {key: value for key, value in (CLAUSE | changed).items() if value is not None}
    lines = [f"{k} = {v}" if k == "rfc" else f'{k} = "{v}"' for k, v in keys.items()]
    return "\n".join(["[[clause]]", *lines, ""])


def test_the_package_has_all_clauses_of_five_classic_and_thirteen_supporting_rfcs():
    clauses = load_clauses()
    assert len(clauses) == 669
    assert {clause.rfc for clause in select(clauses, kind="classic")} == {20, 27, 28, 32, 33}
    assert len({clause.rfc for clause in select(clauses, kind="supporting")}) == 13


def test_the_clauses_of_a_section_speak_of_as_much_but_for_those_that_sum_up_others():
    usual: dict[str, Counter[str]] = {}
    clauses = load_clauses()
    for id_, clause in clauses.items():
        usual.setdefault(id_.rpartition(".")[0], Counter())[clause.breadth] += 1
    breadths = {section: count.most_common(1)[0][0] for section, count in usual.items()}
    others = {
        id_ for id_, each in clauses.items() if each.breadth != breadths[id_.rpartition(".")[0]]
    }
    assert others == {"25.attributes.5", "27.background.7"}


def test_ids_of_a_section_are_numbered_without_a_gap():
    numbers: dict[str, list[int]] = {}
    for id_ in load_clauses():
        section, _, number = id_.rpartition(".")
        numbers.setdefault(section, []).append(int(number))
    assert all(sorted(ns) == list(range(1, len(ns) + 1)) for ns in numbers.values())


def test_clauses_are_looked_up_by_rfc_kind_and_observable_together():
    clauses = load_clauses()
    found = select(clauses, rfc=27, kind="classic", observable="benchmark")
    assert found
    assert found == [
        clause
        for clause in clauses.values()
        if (clause.rfc, clause.observable) == (27, "benchmark")
    ]
    assert select(clauses) == list(clauses.values())
    assert select(clauses, rfc=1) == []


def test_a_reason_is_a_sentence():
    reasons = load_reasons() | load_unjudged()
    assert [id_ for id_, reason in reasons.items() if not reason.endswith(".")] == []


def test_keys_that_may_be_left_out_are_none():
    (clause,) = parse_clauses(toml()).values()
    assert (clause.violator, clause.newest, clause.note) == (None, None, None)


@pytest.mark.parametrize(("changed", "complaint"), WRONG)
def test_a_clause_that_is_not_as_documented_is_refused(changed, complaint):
    with pytest.raises(FormatError, match=re.escape(complaint)):
        parse_clauses(toml(**changed))


def test_an_id_that_comes_twice_is_refused():
    with pytest.raises(FormatError, match=r'expected every id once, got "27\.alloc\.1"'):
        parse_clauses(toml() + toml())


def test_what_is_not_toml_is_refused():
    with pytest.raises(FormatError, match="expected TOML"):
        parse_clauses("[[clause")


def test_an_empty_reason_is_refused():
    with pytest.raises(FormatError):
        parse_reasons('"27.alloc.1" = ""')
