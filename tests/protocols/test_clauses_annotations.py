"""RFC 27, Alloc Annotate: how annotations are merged."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.protocols import merge_annotations

KEYS = st.sampled_from("abc")
SCALARS = st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
ANNOTATIONS = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=3),
    lambda inner: st.dictionaries(KEYS, SCALARS | inner, max_size=3),
    max_leaves=8,
)


def test_two_dictionaries_are_merged_at_every_depth():
    """27.annotate.6"""
    current = {"sched": {"a": 1, "deep": {"x": 1}}, "user": {"k": 1}}
    update = {"sched": {"b": 2, "deep": {"y": 2}}}
    assert merge_annotations(current, update) == {
        "sched": {"a": 1, "b": 2, "deep": {"x": 1, "y": 2}},
        "user": {"k": 1},
    }


@pytest.mark.parametrize(
    ("old", "new"), [(1, 2), ([1], [2]), (1, {"a": 1}), ({"a": 1}, 1), ({"a": 1}, [1])]
)
def test_a_key_that_is_there_takes_the_new_value(old: Any, new: Any):
    """27.annotate.7: scalar over dictionary and the other way round; lists are not joined."""
    assert merge_annotations({"k": old, "other": 0}, {"k": new}) == {"k": new, "other": 0}


def test_null_removes_a_key_at_every_depth():
    """27.annotate.8: what becomes empty stays, and null for an absent key does nothing."""
    current = {"a": 1, "sched": {"b": 2}}
    assert merge_annotations(current, {"a": None, "z": None}) == {"sched": {"b": 2}}
    assert merge_annotations(current, {"sched": {"b": None, "z": None}}) == {"a": 1, "sched": {}}
    assert merge_annotations({}, {"sched": {"b": None}}) == {"sched": {}}


@pytest.mark.parametrize("keeps_empty", [True, False])
def test_null_inside_a_new_value_is_left_out(*, keeps_empty: bool):
    """27.annotate.8, and readings: Annotations."""
    update = {"sched": {"a": None, "b": 1, "c": {"d": None, "e": 2}}}
    merged = merge_annotations({}, update, keeps_empty=keeps_empty)
    assert merged == {"sched": {"b": 1, "c": {"e": 2}}}


@pytest.mark.parametrize(
    ("current", "update"),
    [
        ({"sched": {"b": 2}}, {"sched": {"b": None}}),
        ({"sched": {"deep": {"b": 2}}}, {"sched": {"deep": {"b": None}}}),
        ({}, {"sched": {"deep": {"b": None}}}),
        ({"sched": 1}, {"sched": {}}),
    ],
)
def test_object_that_is_left_empty_goes_in_the_current_edition(current: Any, update: Any):
    """readings: Annotations."""
    assert merge_annotations({"a": 1} | current, update, keeps_empty=False) == {"a": 1}
    assert merge_annotations({"a": 1} | current, update).keys() == {"a", "sched"}


@pytest.mark.parametrize("value", [0, False, "", "text", 1.5, [1, [2]], {"deep": {"er": 1}}])
def test_a_key_that_is_not_there_is_added_whatever_its_value(value: Any):
    """27.annotate.9, 27.annotate.17"""
    assert merge_annotations({"a": 1}, {"k": value}) == {"a": 1, "k": value}


@given(ANNOTATIONS, ANNOTATIONS)
def test_a_merge_changes_neither_side_and_a_second_one_changes_nothing(current: Any, update: Any):
    before = copy.deepcopy((current, update))
    for keeps_empty in (True, False):
        once = merge_annotations(current, update, keeps_empty=keeps_empty)
        assert merge_annotations(once, update, keeps_empty=keeps_empty) == once
    assert (current, update) == before
