"""The monitor: states by key, views shared and seen as they were, turns, rest, and snapshots."""

from __future__ import annotations

import msgspec

from flux_trio.judge.engine import readers
from flux_trio.judge.engine.monitor import Monitor, Verdict
from flux_trio.judge.engine.readers import all_readers
from flux_trio.judge.engine.rule import Broken, Rules
from flux_trio.judge.engine.selector import job_id, logged, received, sent, while_live
from flux_trio.judge.engine.view import Mark, view
from flux_trio.judge.rules import ALL_RULES
from flux_trio.judge.views.calls import ANSWER, ANSWERS
from flux_trio.messages import Request, Response
from flux_trio.trace import Record
from tests.explore.search.places import snapshot
from tests.support.judged import CLAUSES, come_back, hand_made, judge, made, made_event


def counting(record, seen):
    return [(job_id(record), None)]


COUNT = view(
    "count",
    logged("start"),
    parts=counting,
    fold=lambda count, _part, _record, _seen: (count or 0) + 1,
)


def test_a_view_keeps_a_state_under_each_key_and_a_rule_owes_what_is_live_at_rest():
    rules = Rules()
    started = view(
        "started",
        logged("start", "finish"),
        key=job_id,
        fold=lambda _n, _part, record, _seen: record.n if record.data["name"] == "start" else None,
    )

    def unfinished(seen):
        return [Broken("no finish", (n,)) for n in seen.all(started).values()]

    @rules.judge("invariant.x", logged("finish"), views=[started], debts=unfinished)
    def finish_follows_start(_record, _seen):
        return True

    trace = hand_made(made_event(1, "start"), made_event(2, "start"), made_event(1, "finish"))
    monitor = judge(trace, rules.all)
    assert [(found.text, found.because, found.record.n) for found in monitor.violations] == [
        ("no finish", (2,), 3)
    ]
    assert monitor.verdicts() == {"invariant.x": Verdict.BROKEN}


def test_a_view_is_seen_as_it_was_before_the_record():
    rules, seen_counts = Rules(), []

    @rules.judge("invariant.x", logged("start"), views=[COUNT])
    def look(record, seen):
        seen_counts.append(seen.at(COUNT, job_id(record)))
        return True

    monitor = judge(hand_made(made_event(1, "start"), made_event(1, "start")), rules.all)
    assert seen_counts == [None, 1]
    assert monitor.all(COUNT) == {1: 2}
    assert monitor.verdicts() == {"invariant.x": Verdict.KEPT}


def test_a_rule_that_nothing_concerns_is_not_exercised():
    rules = Rules()
    rules.judge("invariant.x", sent("request", "a.b"))(lambda _record, _facts: True)
    assert judge([], rules.all).verdicts() == {"invariant.x": Verdict.NOT_EXERCISED}


def test_a_violation_has_the_sentence_and_who_sent_it_with_its_role():
    rules = Rules()
    rules.judge("27.cancel.4", sent("request", "a.b"))(lambda _record, _facts: Broken("so"))
    rules.judge("27.cancel.4", sent("request", "a.c"))(
        lambda _record, _facts: Broken("so", party="somebody else")
    )
    trace = hand_made(made("x", "y", Request("a.b")), made("x", "y", Request("a.c")))
    first, second = judge(trace, rules.all).violations
    assert first.sentence == CLAUSES["27.cancel.4"].text
    assert (first.party, second.party) == ("x", "somebody else")
    assert first.role == "scheduler"


def test_what_a_party_took_up_counts_as_known_when_it_comes_back_to_its_inbox():
    rules, known = Rules(), []

    @rules.judge("invariant.x", sent("response", "a.b"))
    def look(_record, seen):
        known.append(seen.knew("y", 2))
        return True

    request, answer = made("x", "y", Request("a.b")), made("y", "x", Response("a.b"))
    trace = hand_made(request, answer, come_back("y", "z"), answer)
    judge(trace, rules.all, is_late=True)
    assert known == [False, True]


def test_in_simulated_time_a_second_is_enough_to_take_up_a_message():
    rules, known = Rules(), []

    @rules.judge("invariant.x", sent("response", "a.b"))
    def look(_record, seen):
        known.append(seen.knew("y", 2))
        return True

    request, answer = made("x", "y", Request("a.b")), made("y", "x", Response("a.b"))
    at_once = made("y", "x", Response("a.b"))
    trace = hand_made([*request, *at_once], answer)
    judge([msgspec.structs.replace(each, n=n) for n, each in enumerate(trace, 1)], rules.all)
    assert known == [False, True]


def test_equal_pasts_give_equal_snapshots_and_what_is_live_makes_a_difference():
    rules = Rules()
    rules.judge("invariant.x", logged("start"), views=[COUNT])(lambda _record, _seen: None)
    one, other = Monitor(rules.all, CLAUSES), Monitor(rules.all, CLAUSES)
    first, second = hand_made(made_event(1, "start"), made_event(2, "start"))
    for monitor in (one, other):
        monitor.observe(first)
    assert snapshot(one) == snapshot(other)
    assert hash(snapshot(one)) == hash(snapshot(other))
    other.observe(second)
    assert snapshot(one) != snapshot(other)


def test_the_execution_service_is_known_by_what_it_calls_itself():
    rules, topics = Rules(), []
    rules.judge("invariant.x", received("request", "<exec>.start"))(
        lambda record, _facts: topics.append(record.message.topic)
    )
    hello = Request("job-manager.exec-hello", {"service": "my-exec"}, 1)
    answer = Response("job-manager.exec-hello", {}, 0, 1)
    trace = hand_made(
        made("job-manager", "e", Request("my-exec.start")),
        made("e", "job-manager", hello),
        made("job-manager", "e", answer),
        made("job-manager", "e", Request("my-exec.start")),
    )
    judge(trace, rules.all)
    assert topics == ["my-exec.start"]


# --- which records a rule is asked about


def test_a_star_stands_for_the_rest_of_a_topic():
    rules, topics = Rules(), []
    for pattern in ("a.*", "*.b"):
        rules.judge("invariant.x", sent("request", pattern))(
            lambda record, _facts: topics.append(record.message.topic)
        )
    judge(
        hand_made(*(made("x", "y", Request(topic)) for topic in ("a.b", "a.c", "c.b"))), rules.all
    )
    assert topics == ["a.b", "a.b", "a.c", "c.b"]


def answers(*matchtags: int) -> list[Record]:
    """A request with matchtag 1, and responses with these."""
    request = made("x", "y", Request("a.b", {}, 1, routes=("x",)))
    came = [made("y", "x", Response("a.b", {}, 0, matchtag)) for matchtag in matchtags]
    return hand_made(request, *came)


def test_a_rule_about_a_trait_is_given_the_value_that_each_record_has():
    rules, asked = Rules(), []

    @rules.by(ANSWER, "invariant.x", ANSWERS)
    def is_asked_for(answer, record, _seen):
        asked.append(answer.is_asked)
        return True if answer.is_asked else Broken(f"{record.message.matchtag}")

    seen = judge(answers(1, 2, 3), rules.all)
    assert asked == [True, False, False]
    assert [each.text for each in seen.violations] == ["2", "3"]


def test_a_leg_with_a_mark_is_about_records_with_such_values_of_the_trait():
    rules, looked_at = Rules(), []
    late = Mark(ANSWER, lambda answer: not answer.is_asked)

    @rules.judge("invariant.x", received("response", "*", mark=late))
    def look(record, _seen):
        looked_at.append(record.message.matchtag)

    judge(answers(1, 2), rules.all)
    assert looked_at == [2]


def test_readers_are_found_once_for_all_monitors_with_the_same_rules(monkeypatch):
    trace = answers(1, 2)
    judge(trace, ALL_RULES)
    monkeypatch.setattr(readers, "Readers", None)  # none is made any more
    judge(trace, ALL_RULES)


def test_readers_of_topics_that_a_peer_invents_are_forgotten_again(monkeypatch):
    monkeypatch.setattr(readers, "KINDS_MAX", 16)
    rules, topics = Rules(), []
    rules.judge("invariant.x", sent("request", "*"))(
        lambda record, _facts: topics.append(record.message.topic)
    )
    trace = hand_made(*(made("x", "y", Request(f"a.{n}")) for n in range(50)))
    judge(trace, rules.all)
    assert topics == [f"a.{n}" for n in range(50)]
    assert len(all_readers(tuple(rules.all))) <= 16


def test_while_nothing_is_live_a_rule_is_not_asked():
    rules, asked = Rules(), []

    @rules.judge("invariant.x", while_live(COUNT, logged("finish")), views=[COUNT])
    def look(record, _seen):
        asked.append(record.n)

    finish, start = made_event(1, "finish"), made_event(2, "start")
    judge(hand_made(finish, start, finish), rules.all)
    assert asked == [3]


def test_rules_about_the_same_subjects_find_them_once_and_are_broken_once():
    rules, found = Rules(), []

    def numbers(record, _seen):
        found.append(record.n)
        return record.message.payload["numbers"]

    @rules.each("invariant.x", sent("request", "a.b"), of=numbers)
    def positive(number):
        return number > 0 or Broken(f"{number}")

    @rules.each("invariant.y", sent("request", "a.b"), of=numbers)
    def even(number):
        return True if number % 2 == 0 else None

    trace = hand_made(made("x", "y", Request("a.b", {"numbers": [-1, -2, 3]})))
    monitor = judge(trace, rules.all)
    assert found == [1]
    assert [(each.clause, each.text) for each in monitor.violations] == [("invariant.x", "-1")]
    assert monitor.verdicts() == {"invariant.x": Verdict.BROKEN, "invariant.y": Verdict.KEPT}


def test_a_view_of_one_key_may_have_records_of_many():
    ages = view(
        "ages",
        logged("start"),
        key=job_id,
        parts=lambda record, _seen: [(jobid, None) for jobid in record.message.payload["ids"]],
        many=sent("request", "a.b"),
        fold=lambda age, _part, _record, _seen: (age or 0) + 1,
    )
    rules = Rules()
    rules.judge("invariant.x", logged("start"), views=[ages])(lambda _record, _seen: None)
    told = made("x", "y", Request("a.b", {"ids": [1, 2]}))
    monitor = judge(hand_made(made_event(1, "start"), told), rules.all)
    assert monitor.all(ages) == {1: 2, 2: 1}
