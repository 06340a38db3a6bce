"""State of a core is put down as plain data and taken up again, whole."""

from __future__ import annotations

import math
from collections import Counter, deque
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.cores.outbox import Outbox
from flux_trio.cores.state import Part, StateError, put_down, take_up
from flux_trio.editions import CLASSIC
from flux_trio.formats import Idset
from flux_trio.messages import Errno, Flag, Response


class Held(Part):
    """A part with one value as its state."""

    value: Any

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Core(Part):
    """Two parts that may hold the same object."""

    def __init__(self) -> None:
        self.one = Held()
        self.other = Held()
        self.outbox = Outbox[str, Any, str](CLASSIC)
        self.then = self.one.__init__  # wiring: not looked at


def reborn(core: Core) -> Core:
    encoded = msgspec.json.encode(put_down(core))
    after = Core()
    take_up(after, msgspec.json.decode(encoded))
    return after


def after(value: Any) -> Any:
    core = Core()
    core.one.value = value
    return reborn(core).one.value


KEYS = st.one_of(st.integers(), st.text(), st.tuples(st.text(), st.integers()))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
        st.just(Errno.ENOENT),
        st.frozensets(KEYS),
        st.integers(0, 2**80).map(Idset.from_bits),
    ),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(KEYS, inner), st.sets(KEYS), st.tuples(inner, inner)
    ),
)


@given(VALUES)
def test_any_data_is_the_same_afterwards(value: Any) -> None:
    found = after(value)
    assert found == value
    assert type(found) is type(value)


def test_order_and_kind_of_collections_are_kept() -> None:
    value = {"b": deque([1, 2]), "a": Counter("xxy")}
    found = after(value)
    assert list(found) == ["b", "a"]
    assert found == value
    assert isinstance(found["b"], deque)


def test_infinite_times_and_bits_beyond_64_are_kept() -> None:
    assert after([math.inf, -math.inf, 1 << 200]) == [math.inf, -math.inf, 1 << 200]


def test_flags_that_are_several_are_kept() -> None:
    assert after(Flag.STREAMING | Flag.NORESPONSE) == Flag.STREAMING | Flag.NORESPONSE


def test_object_held_twice_is_one_object_afterwards() -> None:
    core = Core()
    core.one.value = core.other.value = [1]
    found = reborn(core)
    found.one.value.append(2)
    assert found.other.value == [1, 2]


def test_object_that_holds_itself_is_kept() -> None:
    ring: list[Any] = []
    ring.append(ring)
    found = after(ring)
    assert found[0] is found


def test_open_calls_and_timers_are_kept_and_matchtags_go_on() -> None:
    core = Core()
    core.outbox.ask("kvs.lookup", {"key": "a"}, "a's value")
    core.outbox.set_timer("tick", 5.0)
    found = reborn(core).outbox
    assert found.timers == {"tick": 5.0}
    assert found.ask("kvs.lookup", {"key": "b"}, "b's value") == 2
    assert found.calls.match(Response("kvs.lookup", {}, matchtag=1)) == "a's value"


def test_bound_of_a_queue_is_kept() -> None:
    found = after(deque([1, 2], maxlen=2))
    found.append(3)
    assert found == deque([2, 3])


@pytest.mark.parametrize(
    "code", [print, "x".join, partial(print, 1), iter([1]), object(), Held(), lambda: 1, math, Core]
)
def test_code_in_the_state_is_refused_with_its_place(code: Any) -> None:
    with pytest.raises(StateError, match=r"core\.one\.value\['job'\]: expected data, got "):
        after({"job": code})


def test_class_of_another_package_is_refused_when_state_is_read() -> None:
    core = Core()
    data = put_down(core)
    data["core.one"]["value"] = ["enum", "os:system", "true"]
    with pytest.raises(StateError, match="expected a class of flux_trio, got 'os:system'"):
        take_up(core, data)


def test_state_of_another_core_is_refused() -> None:
    text = "the state lacks core.one, core.other and has core, which the core does not have"
    with pytest.raises(StateError, match=text):
        take_up(Core(), {"core": {}, "core.outbox": put_down(Core())["core.outbox"]})


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({}, "the state of core.one lacks value"),
        (
            {"value": 1, "b": 2, "a": 3},
            "the state of core.one has a, b, which the part does not have",
        ),
        ({"old": 1}, "the state of core.one lacks value and has old, which the part does not have"),
        (7, "expected the state of core.one as an object, got 7"),
    ],
)
def test_state_with_other_attributes_is_refused_with_the_part_and_their_names(
    held: Any, text: str
) -> None:
    with pytest.raises(StateError) as caught:
        take_up(Core(), put_down(Core()) | {"core.one": held})
    assert str(caught.value) == text


def test_equal_sets_have_equal_dumps() -> None:
    one, other = Core(), Core()
    one.one.value, other.one.value = {8, 1, 0}, {0, 1, 8}
    assert put_down(one) == put_down(other)
