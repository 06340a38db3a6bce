"""Subjects of one form are judged alike: what a step remembers by form is what each rule says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flux_trio.judge.checks.r_checks import Form, form_of
from flux_trio.judge.engine.compiled import FORMS_MAX, Answers
from flux_trio.judge.engine.rule import Broken, Rules, sent
from flux_trio.judge.rules import ALL_RULES
from flux_trio.judge.views.resource_sets import SeenR

OF_FORM = [rule for rule in ALL_RULES if rule.form is form_of]

IDS = st.sampled_from(("0", "0-3", "1,3", "[0-1]", "7", "00"))  # most are valid, so most R are
TIMES = st.sampled_from((0, 0.0, 1e9, 2_000_000_000, "1"))
HOSTS = st.sampled_from((["a"], ["a[0-3]"], ["a", "b,c"], ["a[0-"], [""], []))


def _resources(fields: dict[str, Any]) -> dict[str, Any]:
    children = {"core": fields.pop("core")} | {k: fields.pop(k) for k in ("gpu",) if k in fields}
    entry = {"rank": fields.pop("rank"), "children": children}
    return {"version": 1, "execution": {"R_lite": [entry], **fields}}


R = st.fixed_dictionaries(
    {"rank": IDS, "core": IDS, "nodelist": HOSTS},
    optional={
        "gpu": IDS,
        "nslots": st.sampled_from((1, 4, 9, 0, True)),
        "starttime": TIMES,
        "expiration": TIMES,
        "properties": st.just({}),
    },
).map(_resources)


def _simplest(form: Form) -> SeenR:
    """Return an R of a form."""
    has = {
        "gpu": (form.has_gpus, "0"),
        "nslots": (form.has_nslots, 1),
        "starttime": (form.has_starttime, 1e9),
        "expiration": (form.has_expiration, 2e9),
    }
    fields = {key: value for key, (is_there, value) in has.items() if is_there}
    r = _resources({"rank": "0", "core": "0", "nodelist": ["a"], **fields})
    return SeenR("R", r, 1.5e9, None if form.is_inventory else 1)


def _answers(r: SeenR) -> dict[str, object]:
    return {rule.clause: rule.each(r) for rule in OF_FORM if rule.each is not None}


@given(R, st.sampled_from((None, 1)))
def test_what_the_checks_say_of_a_plain_r_follows_from_its_form(value, jobid):
    r = SeenR("R", value, 1.5e9, jobid)
    form = form_of(r)
    if form is not None:
        answers = _answers(r)
        assert answers == _answers(_simplest(form))
        assert not [each for each in answers.values() if isinstance(each, Broken)]


def test_each_form_of_a_plain_r_is_its_own():
    forms = [Form(*map(bool, map(int, f"{bits:05b}"))) for bits in range(32)]
    plain = [form for form in forms if not (form.is_inventory and form.has_nslots)]
    assert [form_of(_simplest(form)) for form in plain] == plain
    assert len({tuple(_answers(_simplest(form)).items()) for form in plain}) == len(plain)


def _table() -> tuple[Answers, list[int]]:
    rules, asked = Rules(), list[int]()

    @rules.each("x", sent("request", "a.b"), of=lambda _record, _seen: (), form=abs)
    def is_small(number: int) -> Broken | bool | None:
        asked.append(number)
        return abs(number) < 3 or Broken(f"{number}")

    return Answers(tuple(rules.all)), asked


def test_the_rules_are_asked_once_for_each_form():
    answers, asked = _table()
    assert answers.get(1) is None
    assert answers.asked(1, 1, []) == ("x",)
    assert answers.get(1) == ("x",)
    assert asked == [1]


def test_a_violation_is_not_remembered_and_neither_is_a_subject_without_a_form():
    answers, _ = _table()
    found: list[Any] = []
    assert answers.asked(5, 5, found) == ()
    assert [said.text for _, said in found] == ["5"]
    assert answers.asked(1, None, found) == ("x",)
    assert not answers


def test_the_number_of_remembered_forms_is_bounded():
    answers, _ = _table()
    for number in range(FORMS_MAX + 1):
        answers.asked(0, number, [])
    assert [*answers] == [FORMS_MAX]
