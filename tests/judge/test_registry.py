"""The registry as a file that must be right, and what its reader refuses."""

import re
from collections import Counter

import pytest

from flux_trio.formats import FormatError
from flux_trio.judge import load_clauses, load_unjudged, parse_clauses, parse_reasons
from flux_trio.judge.rules import ALL_RULES, CURRENT_RULES
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


KINDS = ("classic", "supporting", "current")
JUDGED = {rule.clause for rule in (*ALL_RULES, *CURRENT_RULES)}
SHOWN = ("trace", "eventlog", "format")
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
    assert len([each for each in clauses.values() if each.kind != "current"]) == 669
    rfcs = {kind: {each.rfc for each in clauses.values() if each.kind == kind} for kind in KINDS}
    assert rfcs["classic"] == {20, 27, 28, 32, 33}
    assert len(rfcs["supporting"]) == 13
    assert rfcs["current"] <= rfcs["classic"]


def test_a_clause_that_has_changed_says_what_the_newest_text_has_and_no_other_does():
    clauses = load_clauses().values()
    told = {each.id for each in clauses if each.now is not None}
    assert told == {each.id for each in clauses if each.newest == "changed"}
    assert not [each.id for each in clauses if each.kind == "current" and each.newest]


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
    with pytest.raises(FormatError, match="expected str of length >= 1"):
        parse_reasons('"27.alloc.1" = ""')


# --- rules for clauses


def test_every_clause_that_a_trace_may_show_has_a_rule_or_a_reason_why_not():
    shown = [each.id for each in load_clauses().values() if each.observable in SHOWN]
    assert [id_ for id_ in shown if id_ not in JUDGED and id_ not in load_unjudged()] == []


@pytest.mark.parametrize("rfc", [3, 6, 20, 28])
def test_every_clause_has_a_rule_or_a_reason_why_not(rfc):
    clauses = [each.id for each in load_clauses().values() if each.rfc == rfc]
    without = [id_ for id_ in clauses if id_ not in JUDGED]
    assert without == [id_ for id_ in without if id_ in load_unjudged()]


def test_what_has_no_rule_is_a_clause_and_has_none():
    assert sorted(set(load_unjudged()) - set(load_clauses())) == []
    assert sorted({rule.clause for rule in ALL_RULES} & set(load_unjudged())) == []
