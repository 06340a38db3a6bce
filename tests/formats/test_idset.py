import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import IDS_MAX, FormatError, Idset
from tests.support.reading import value_or_error

ids = st.sets(st.integers(0, 2000), max_size=600)


@pytest.mark.parametrize(
    ("text", "members", "canonical"),
    [
        ("1,2,3,5,6,42", [1, 2, 3, 5, 6, 42], "1-3,5-6,42"),
        ("1-3,5-6,42", [1, 2, 3, 5, 6, 42], "1-3,5-6,42"),
        ("[1-3,5-6,42]", [1, 2, 3, 5, 6, 42], "1-3,5-6,42"),
    ],
)
def test_examples_of_the_rfc(text: str, members: list[int], canonical: str) -> None:
    """22.idset.5, 22.idset.6: ranges and brackets are optional when read."""
    assert value_or_error(lambda: list(Idset.parse(text))) == members
    idset = Idset.parse(text)
    assert str(idset) == canonical
    assert idset.brackets() == "[1-3,5-6,42]"


@given(ids)
def test_printed_sets_parse_back(members: set[int]) -> None:
    """22.idset.1, 22.idset.2, 22.idset.3: unique ids, ascending, in decimal."""
    idset = Idset.of(members)
    text = str(idset)
    assert set(text) <= set("0123456789,-")
    edges = [int(edge) for edge in text.replace("-", ",").split(",") if edge]
    assert edges == sorted(set(edges))
    assert Idset.parse(text) == idset
    assert Idset.parse(idset.brackets()) == idset
    assert list(idset) == sorted(members)
    assert Idset.parse(",".join(map(str, sorted(members)))) == idset


def test_sets_with_hundreds_of_runs_print_and_parse_back() -> None:
    """22.idset.2: whichever way the set is built."""
    for step in (2, 3, 7):
        text = ",".join(f"{i}-{i + 1}" if step == 7 else str(i) for i in range(0, 9000, step))
        assert str(Idset.parse(text)) == text
        assert Idset.of(Idset.parse(text)) == Idset.parse(text)


@pytest.mark.parametrize("text", ["3,1-2", "2,2", "2-2", "3-1", "1-3,3", "1-3,2-5", "5,4", "0,0"])
def test_ids_out_of_order_are_refused(text: str) -> None:
    """22.idset.2: ascending, each id once (22.idset.1)."""
    with pytest.raises(FormatError, match="ascending order"):
        Idset.parse(text)


@pytest.mark.parametrize("text", ["01-03", "00", "1-02", "0,01", "-0", "1,-0", "0x1", "0-01"])
def test_leading_zeroes_and_other_bases_are_refused(text: str) -> None:
    """22.idset.4: no leading zeroes; 22.idset.3: decimal."""
    with pytest.raises(FormatError):
        Idset.parse(text)


@pytest.mark.parametrize(
    "text", [" 1", "1 ", "1, 2", "1..3", "1e3", "1.0", "+1", "1_0", "a", "é", "٣", "1\n", "1;2"]
)
def test_other_characters_are_refused(text: str) -> None:
    """22.idset.7: digits, comma, hyphen and brackets only."""
    with pytest.raises(FormatError, match="an idset such as"):
        Idset.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("1-", "-1", "1--2", "1-2-3", "5,1-2-3", "1,", ",1", "1,,2", ",", "-"),
        *("[1", "1]", "[[1]]", "[1],[2]", "]1[", "["),
        pytest.param("9" * 5000, id="5000 digits"),
    ],
)
def test_broken_syntax_is_refused(text: str) -> None:
    """22.idset.6: brackets come in one pair around the whole."""
    with pytest.raises(FormatError, match="an idset such as"):
        Idset.parse(text)


@pytest.mark.parametrize("text", ["", "[]"])
def test_empty_string_is_the_empty_set(text: str) -> None:
    """22.idset.8: and the empty set prints as the empty string."""
    assert Idset.parse(text) == Idset()
    assert str(Idset()) == Idset().brackets() == ""
    assert list(Idset()) == []


@pytest.mark.parametrize("value", [None, 5, ["1"], b"1"])
def test_only_a_string_is_an_idset_string(value: object) -> None:
    with pytest.raises(FormatError, match="an idset such as"):
        Idset.parse(value)


def test_ids_beyond_the_bound_are_refused_before_they_cost_memory() -> None:
    assert Idset.parse(f"0-{IDS_MAX - 1}").last() == IDS_MAX - 1
    for text in (str(IDS_MAX), "4000000000", f"0-{IDS_MAX}", "1-9" + "9" * 17):
        with pytest.raises(FormatError, match="ids from 0 to 4194303"):
            Idset.parse(text)
    for outside in (-1, IDS_MAX):
        with pytest.raises(FormatError, match=f"ids from 0 to 4194303, got {outside}$"):
            Idset.of([0, 3, outside])
    assert Idset.from_bits((1 << IDS_MAX) - 1).last() == IDS_MAX - 1
    for bits in (-1, 1 << IDS_MAX):
        with pytest.raises(FormatError, match="a bit set"):
            Idset.from_bits(bits)


@given(ids, ids)
def test_operators_agree_with_sets(left: set[int], right: set[int]) -> None:
    a, b = Idset.of(left), Idset.of(right)
    assert set(a | b) == left | right
    assert set(a & b) == left & right
    assert set(a - b) == left - right
    assert set(a ^ b) == left ^ right
    assert (a <= b) == (left <= right)
    assert (a & b) <= a
    assert a.is_disjoint(b) == left.isdisjoint(right)
    assert (a == b) == (left == right)
    assert len(a) == len(left)
    assert bool(a) == bool(left)
    assert all(id_ in a for id_ in left)
    assert all((id_ in a) == (id_ in left) for id_ in right)
    assert Idset.from_bits(a.bits) == a


def test_first_and_last() -> None:
    idset = Idset.parse("3-5,9")
    assert (idset.first(), idset.last()) == (3, 9)
    for ask in (Idset().first, Idset().last):
        with pytest.raises(ValueError, match="empty idset"):
            ask()


def test_sets_are_values() -> None:
    assert {Idset.parse("1-2"): "x"}[Idset.parse("1,2")] == "x"
    assert Idset.parse("1") != 2
    assert -1 not in Idset.parse("1")
    assert repr(Idset.parse("1,2")) == "Idset('1-2')"
    with pytest.raises(AttributeError):
        Idset().bits = 3  # type: ignore[misc]  # the point of the test


def test_brackets_are_left_out_where_they_say_nothing() -> None:
    assert Idset.parse("[7]").brackets() == "7"
    assert Idset.parse("7-8").brackets() == "[7-8]"


@given(ids, st.integers(0, 2100))
def test_ids_from_an_end_on_are_left_out(ids: set[int], end: int) -> None:
    text = str(Idset.of(ids))
    assert Idset.parse_below(text, end) == Idset.of(id_ for id_ in ids if id_ < end)


def test_ids_that_are_left_out_are_checked() -> None:
    for text in ("0,4194304", "3-1", "1,1", "x"):
        with pytest.raises(FormatError):
            Idset.parse_below(text, 0)
