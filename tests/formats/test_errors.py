import pickle

import msgspec
import pytest

from flux_trio.formats import MISSING, FormatError, Words


def test_error_says_where_what_was_expected_and_what_came() -> None:
    error = FormatError('an idset such as "0-3,7"', "3-1", "execution.R_lite[0].rank")
    assert str(error) == 'execution.R_lite[0].rank: expected an idset such as "0-3,7", got "3-1"'
    assert isinstance(error, ValueError)


def test_error_without_a_place_starts_with_what_was_expected() -> None:
    assert str(FormatError("an array", 5)) == "expected an array, got 5"


@pytest.mark.parametrize(
    ("inner", "prefix", "where"),
    [
        ("rank", "R_lite", "R_lite.rank"),
        ("[0].rank", "R_lite", "R_lite[0].rank"),
        ("", "R_lite", "R_lite"),
        ("rank", "", "rank"),
        ("", "", ""),
    ],
)
def test_at_puts_an_error_below_a_prefix(inner: str, prefix: str, where: str) -> None:
    error = FormatError("an integer", "x", inner)
    placed = error.at(prefix)
    assert (placed.where, placed.expected, placed.got) == (where, "an integer", '"x"')
    assert error.where == inner


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("a\nb\x00é", '"a\\nb\\x00é"'),
        ("'\"\\x", '"\'"\\x"'),
        (MISSING, "nothing"),
        (Words("a word"), "a word"),
        (None, "None"),
        pytest.param(10**5000, "an integer of 16610 bits", id="long integer"),
        pytest.param([10**5000], "[an integer of 16610 bits]", id="long integer in a list"),
        pytest.param("\ud800", '"\\ud800"', id="lone surrogate"),
    ],
)
def test_what_came_is_shown_so_that_it_can_be_printed(value: object, got: str) -> None:
    assert FormatError("other", value).got == got
    FormatError("other", value).got.encode()


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, list(range(10**6)), {"a": ["b" * 200] * 200}],
    ids=["string", "list", "nested"],
)
def test_what_came_is_shortened(value: object) -> None:
    assert len(FormatError("other", value).got) <= 80


def test_error_survives_pickling() -> None:
    error = FormatError("an integer", "x", "rank")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    priority: list[int] = []
    names: dict[str, int] = {}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"{}", "expected the key id, got nothing"),
        (b'{"id":"x"}', "id: expected int, got str"),
        (b'{"id":1,"priority":[1,"x"]}', "priority[1]: expected int, got str"),
        (b'{"id":1,"names":{"a":"x"}}', "names[]: expected int, got str"),
        (b'{"id":1,"x":2}', "expected only the keys of the format, got the key x"),
        (b"[]", "expected object, got array"),
        (b"{", "expected well-formed data, got Input data was truncated"),
    ],
)
def test_msgspec_complaints_take_the_same_form(payload: bytes, text: str) -> None:
    with pytest.raises(msgspec.MsgspecError) as caught:
        msgspec.json.decode(payload, type=_Payload)
    assert str(FormatError.of_msgspec(caught.value)) == text
