"""The order of records is part of a state as far as a rule may ask for it."""

from __future__ import annotations

import copy
import json
import marshal
import math
import operator
import pickle
from collections.abc import Callable, Hashable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from flux_trio.judge import Monitor
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import ANY_TOPIC, job_id, logged, no_key, received, topic_of
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab import Crash, JobPlan, OwnerRequest, Plan
from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.explore.search import Report, Search
from tests.explore.search.identity import identity
from tests.explore.search.judging import Stood
from tests.explore.search.order import ALL, SAME, Order
from tests.explore.search.placed import TEXT, NumberUsed, Placed, Spot, number_of
from tests.explore.search.settling import Numbering
from tests.explore.search.small_world import Choice, WorldState

ONE = Plan(seed=0, nnodes=1, cores=1, jobs=(JobPlan(),))
HOLD = msgspec.structs.replace(ONE, actions=(OwnerRequest(0.0, "urgency", value=0),))
CANCEL = msgspec.structs.replace(ONE, actions=(OwnerRequest(0.0, "cancel"),))
EXEC = msgspec.structs.replace(ONE, jobs=(JobPlan(run=0.0),), faults=(Crash("job-exec", 1),))
RULES_OF_JUDGE = "tests.explore.search.judging.ALL_RULES"


# --- places that are compared


def two(order: Order, keys: tuple[object, object] = ((), ())) -> tuple[Any, Any]:
    """An older and a newer place at two spots."""
    return Placed(3, order.spot("one", keys[0])), Placed(5, order.spot("other", keys[1]))


@pytest.mark.parametrize(
    "compare",
    [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, max, min],
)
def test_comparison_of_two_places_is_learned(compare: Callable[[int, int], object]) -> None:
    order = Order()
    one, other = two(order)
    found, plain = compare(one, other), compare(3, 5)
    assert number_of(found) == plain
    assert order.pairs == {("one", "other"): SAME}
    assert order.nlearned == 1
    compare(one, other)
    assert order.nlearned == 1


@pytest.mark.parametrize(
    "compare", [sorted, lambda pair: pair[0] in pair[1:], lambda pair: (pair[0],) < (pair[1],)]
)
def test_comparison_within_a_collection_is_learned(compare: Callable[[Any], object]) -> None:
    order = Order()
    compare(list(two(order)))
    assert order.pairs == {("one", "other"): SAME}


def test_comparison_with_a_new_record_or_with_no_place_is_not_learned() -> None:
    order = Order()
    one, _ = two(order)
    new: Any = Placed(9, None)
    assert one < new
    assert one > 0
    assert one < math.inf
    assert one != None  # noqa: E711 - the comparison itself
    assert one
    assert isinstance(one, int)
    assert order.pairs == {}


def test_text_of_the_number_of_a_record_does_not_tell_it() -> None:
    one, other = two(Order())
    assert f"{one}" == f"{other}" == str(one) == repr(other) == TEXT


USES: dict[str, Callable[[Any], object]] = {
    "place + 1": lambda place: place + 1,
    "1 + place": lambda place: 1 + place,
    "place - 1": lambda place: place - 1,
    "9 - place": lambda place: 9 - place,
    "place << 1": lambda place: place << 1,
    "2 ** place": lambda place: 2**place,
    "-place": operator.neg,
    "+place": operator.pos,
    "~place": operator.invert,
    "abs": abs,
    "round": round,
    "int": int,
    "float": float,
    "complex": complex,
    "Fraction": Fraction,
    "Decimal": Decimal,
    "divmod": lambda place: divmod(place, 2),
    "sum": lambda place: sum([place]),
    "index": operator.index,
    "range": lambda place: range(place, 9),
    "item": lambda place: list(range(9))[place],
    "times": lambda place: [0] * place,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "sqrt": math.sqrt,
    "gcd": lambda place: math.gcd(place, 9),
    "hex": hex,
    "chr": chr,
    "real": lambda place: place.real,
    "imag": lambda place: place.imag,
    "numerator": lambda place: place.numerator,
    "denominator": lambda place: place.denominator,
    "conjugate": lambda place: place.conjugate(),
    "bit_length": lambda place: place.bit_length(),
    "bit_count": lambda place: place.bit_count(),
    "to_bytes": lambda place: place.to_bytes(8, "big"),
    "as_integer_ratio": lambda place: place.as_integer_ratio(),
    "form": lambda place: f"{place:09}",
    "%d": lambda place: "%d" % place,  # noqa: UP031 - this way, too
    "json": json.dumps,
    "msgspec": msgspec.json.encode,
    "marshal": marshal.dumps,
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "< 4": lambda place: place < 4,
    "< 4.5": lambda place: place < 4.5,
    "4 < place": lambda place: 4 < place,  # noqa: SIM300 - this way, too
    "== 3": lambda place: place == 3,
    "== True": lambda place: place == True,  # noqa: E712 - this way, too
    "== Fraction": lambda place: place == Fraction(3),
    "in range": lambda place: place in range(9),
    "set": lambda place: {place},
    "key": lambda place: {place: 1},
    "hash": lambda place: hash((place,)),
}
"""Uses of a number other than a comparison with that of another record."""


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_any_other_use_of_the_number_of_a_record_raises(use: Callable[[Any], object]) -> None:
    one, _ = two(Order())
    with pytest.raises((NumberUsed, TypeError, ValueError)):  # the last two are those of C
        use(one)


def test_number_of_a_record_is_no_key_of_the_states_of_a_view() -> None:
    """A monitor takes it that no state has a key that is not hashable: this must not pass so."""
    monitor = Monitor(ALL_RULES, {})
    view = next(each for each, _ in monitor.kept())
    assert monitor.at(view, ([],)) is None
    with pytest.raises(NumberUsed):
        monitor.at(view, two(Order())[0])


def test_places_with_different_keys_are_compared_whatever_the_keys_are() -> None:
    order = Order()
    operator.lt(*two(order, (1, 1)))
    assert order.pairs == {("one", "other"): SAME}
    assert order.spot("other", 2) not in order.spot("one", 1).others
    operator.lt(*two(order, (1, 2)))
    assert order.pairs == {("one", "other"): ALL}
    assert order.spot("other", 7) in order.spot("one", 3).others


def test_places_that_come_to_where_they_are_compared_must_have_been_told_apart_before() -> None:
    order = Order()
    operator.lt(*two(order))
    here, there = Placed(3, order.spot("first", ())), Placed(5, order.spot("second", ()))
    order.moved({order.spot("one", ()): [here], order.spot("other", ()): [there]})
    assert order.pairs == {("one", "other"): SAME, ("first", "second"): SAME}


def test_place_that_comes_to_two_spots_and_a_new_one_ask_for_nothing() -> None:
    order = Order()
    operator.lt(*two(order))
    here, new = Placed(3, order.spot("first", ())), Placed(5, None)
    one, other = order.spot("one", ()), order.spot("other", ())
    order.moved({one: [here], other: [here]})
    order.moved({one: [here], other: [new]})
    assert order.pairs == {("one", "other"): SAME}


def test_signs_tell_the_order_of_what_is_compared_alone() -> None:
    order = Order()
    one, other = two(order)
    left = order.spot("left out", ())
    operator.lt(one, other)
    spots: tuple[Spot, Spot] = (order.spot("one", ()), order.spot("other", ()))
    first = order.signs({spots[0]: (3,), spots[1]: (5,), left: (1,)})
    assert first == order.signs({spots[0]: (8,), spots[1]: (9,), left: (10,)})
    assert first != order.signs({spots[0]: (5,), spots[1]: (3,), left: (1,)})
    assert first != order.signs({spots[0]: (3,), spots[1]: (3,), left: (1,)})


# --- the search


def test_search_that_has_learned_something_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.explore.search.search.COMPARED", {})
    search = Search(ONE, with_rules=True)
    report = search.run()
    assert report.nbegun == 2
    assert report.is_complete
    assert ("link.answered", "link.lost") in search.order.pairs


def test_search_that_is_interrupted_after_it_began_again_is_not_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.explore.search.search.COMPARED", {})
    monkeypatch.setattr("tests.explore.search.search.TOLD_EVERY", 1)
    interrupted: list[int] = []

    def interrupt(report: Report) -> None:
        if report.nbegun == 2 and not interrupted:
            interrupted.append(report.nstates)
            raise KeyboardInterrupt

    report = Search(ONE, with_rules=True).run(tell=interrupt)
    assert interrupted
    assert not report.is_complete


def test_search_that_knows_what_is_compared_begins_once() -> None:
    assert Search(ONE, with_rules=True).run().nbegun == 1


CONCERNED = (
    received("event", topics.JOB_EXCEPTION_EVENT),
    received("request", topics.SCHED_CANCEL),
    received("response", topics.SCHED_ALLOC),
)
"""What planted rules look at: the end of a job, as two parties hear of it, and an answer."""


class _Both(Live, frozen=True, gc=False):
    """Where the execution service heard of the exception, and where the scheduler of the cancel."""

    exec: Place = 0
    sched: Place = 0


def planted(is_broken: Callable[[int, int], bool]) -> Rules:
    """A rule about the order of two records; no core depends on that order."""
    rules = Rules()

    def fold(was: _Both | None, _part: None, record: Record, _seen: Seen) -> _Both:
        both = was or _Both()
        match topic_of(record):
            case topics.JOB_EXCEPTION_EVENT if record.party == "job-exec":
                return both.but(exec=record.n)
            case topics.SCHED_CANCEL:
                return both.but(sched=record.n)
        return both

    both_heard = view("planted", *CONCERNED, key=no_key, fold=fold, state=_Both)

    @rules.judge("planted", *CONCERNED, views=[both_heard])
    def rule(record: Record, seen: Seen) -> Finding:
        both = seen.at(both_heard) or _Both()
        if topic_of(record) in (topics.JOB_EXCEPTION_EVENT, topics.SCHED_CANCEL):
            return None
        is_wrong = both.exec and both.sched and is_broken(both.exec, both.sched)
        return Broken("in the wrong order") if is_wrong else None

    return rules


@pytest.mark.parametrize("is_broken", [operator.lt, operator.gt])
def test_violation_that_the_order_alone_shows_is_found(
    monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[int, int], bool]
) -> None:
    monkeypatch.setattr(RULES_OF_JUDGE, (*ALL_RULES, *planted(is_broken).all))
    broken = Search(CANCEL, with_rules=True).run().broken
    assert broken is not None
    assert (broken.name, len(broken.path)) == ("planted", 8)


READINGS: dict[str, Callable[[Any, Any], bool]] = {
    "int": lambda a, b: int(a) < int(b),
    "+": lambda a, b: +a < +b,
    "range": lambda a, b: len(range(a, b)) > 0,
    "form": lambda a, b: f"{a:09}" < f"{b:09}",
    "key": lambda a, b: min((a, b), key=int) is a,
}


@pytest.mark.parametrize("is_broken", READINGS.values(), ids=READINGS)
def test_search_ends_with_an_error_if_a_rule_reads_the_number_of_a_record(
    monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[int, int], bool]
) -> None:
    monkeypatch.setattr(RULES_OF_JUDGE, (*ALL_RULES, *planted(is_broken).all))
    with pytest.raises(NumberUsed):
        Search(CANCEL, with_rules=True).run()


def test_without_the_order_one_of_these_violations_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Order, "signs", lambda *_: ())
    found = []
    for is_broken in (operator.lt, operator.gt):
        with monkeypatch.context() as patched:
            patched.setattr(RULES_OF_JUDGE, (*ALL_RULES, *planted(is_broken).all))
            found.append(Search(CANCEL, with_rules=True).run().broken)
    assert [each is None for each in found].count(True) == 1


class _First(Live, frozen=True, gc=False):
    """Who has heard, and once both have, a value that says who was the first."""

    heard: str = ""
    value: Any = None


def telling(of_exec: object, of_sched: object, wrong: object) -> Rules:
    """A rule whose state has a value, which decides."""
    rules = Rules()

    def fold(was: _First | None, _part: None, record: Record, _seen: Seen) -> _First:
        first = was or _First()
        is_others = record.party not in ("job-exec", "sched") or first.heard in (
            "both",
            record.party,
        )
        if topic_of(record) == topics.SCHED_ALLOC or is_others:
            return first
        if not first.heard:
            return _First(record.party)
        return _First("both", of_exec if first.heard == "job-exec" else of_sched)

    who_was_first = view("planted", *CONCERNED, key=no_key, fold=fold, state=_First)

    @rules.judge("planted", *CONCERNED, views=[who_was_first])
    def rule(record: Record, seen: Seen) -> Finding:
        first = seen.at(who_was_first) or _First()
        is_wrong = first.heard == "both" and first.value == wrong
        is_broken = topic_of(record) == topics.SCHED_ALLOC and is_wrong
        return Broken("in the wrong order") if is_broken else None

    return rules


@pytest.mark.parametrize(
    "values", [(1, 2), (-1, -2), (1, 1 << 61), (0, (1 << 61) - 1), ("", 0), (False, "")], ids=repr
)
@pytest.mark.parametrize("wrong", [0, 1])
def test_violation_that_a_value_of_a_rule_alone_shows_is_found(
    monkeypatch: pytest.MonkeyPatch, values: tuple[object, object], wrong: int
) -> None:
    monkeypatch.setattr(RULES_OF_JUDGE, (*ALL_RULES, *telling(*values, values[wrong]).all))
    broken = Search(CANCEL, with_rules=True).run().broken
    assert broken is not None
    assert (broken.name, len(broken.path)) == ("planted", 8)


def test_values_have_one_number_if_they_are_equal_and_of_one_class() -> None:
    numbering = Numbering()
    values: list[Hashable] = [-1, -2, 1, True, 1.0, 1 << 61, 0, False, "", (), None, (1,), _First()]
    numbers = [numbering.of(each) for each in values]
    assert numbers == list(range(1, len(values) + 1))
    assert [numbering.of(each) for each in values] == numbers
    assert numbering.of((True,)) == numbering.of((1,))  # see explore.md


def test_violations_of_one_transition_have_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Rules()

    def fold(_was: Place | None, _part: None, record: Record, _seen: Seen) -> Place:
        return record.n

    last_event = view("planted", logged(ANY_TOPIC), key=job_id, fold=fold, state=Place)

    @rules.judge("planted", logged(ANY_TOPIC), views=[last_event])
    def rule(record: Record, seen: Seen) -> Finding:
        last = seen.at(last_event, job_id(record))
        return None if last is None else Broken("another event", (last,))

    monkeypatch.setattr(RULES_OF_JUDGE, (*ALL_RULES, *rules.all))
    broken = Search(ONE, with_rules=True).run().broken
    assert broken is not None
    assert broken.name == "planted"


# --- states that are taken for one


class Ways(Search):
    """A search that compares how a state goes on when it is reached on different ways: on the first
    one, and on others that led to what was taken for the same state.
    """

    def names_after(self, state: WorldState, stood: Stood) -> dict[Choice, bytes]:
        """Return by choice the state to which it leads, as a name that tells the judge's, too."""
        found = {}
        self._world.take_up(state)
        for choice in self._world.choices():
            reached, on = self.step(state, stood, choice)
            found[choice] = self.name(reached, on)
        return found

    def step(self, state: WorldState, stood: Stood, choice: Choice) -> tuple[WorldState, Stood]:
        self._world.take_up(state)
        self._judge.take_up(stood, state)
        self._world.do(choice)
        assert self._judge.violations == []
        reached = self._world.put_down()
        return reached, self._judge.put_down(reached)[0]

    def name(self, state: WorldState, stood: Stood) -> bytes:
        self._judge.take_up(stood, state)
        return identity(state, self._world.machines) + self._judge.put_down(state)[1]

    def twins(self, ntwins_max: int) -> list[tuple[object, object]]:
        """Return of so many twins how the first one goes on, and how the other one does."""
        first = (self._first, self._stood)
        known = {self.name(*first): self.names_after(*first)}
        met = [first]
        found: list[tuple[object, object]] = []
        while met and len(found) < ntwins_max:
            state, stood = met.pop()
            self._world.take_up(state)
            for choice in self._world.choices():
                reached = self.step(state, stood, choice)
                name, after = self.name(*reached), self.names_after(*reached)
                if name in known:
                    found.append((known[name], after))
                else:
                    known[name] = after
                    met.append(reached)
        return found


@pytest.mark.parametrize("plan", [HOLD, CANCEL, EXEC], ids=["hold", "cancel", "exec"])
def test_states_that_are_taken_for_one_go_on_alike_with_the_rules(plan: Plan) -> None:
    ways = Ways(plan, with_rules=True)
    nlearned, twins = -1, list[tuple[object, object]]()
    while nlearned < ways.order.nlearned:  # until there is no more to learn
        nlearned, twins = ways.order.nlearned, ways.twins(200)
    assert len(twins) >= 50
    for one, other in twins:
        assert one == other
