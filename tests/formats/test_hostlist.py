import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import HOSTS_MAX, FormatError, Hostlist
from tests.support.reading import value_or_error

VECTORS = [
    ("", ""),
    ("foox,fooy,fooz", "foox,fooy,fooz"),
    ("[1-3,5-6]", "1,2,3,5,6"),
    ("foo[1-5]", "foo1,foo2,foo3,foo4,foo5"),
    ("foo[0-4]-eth2", "foo0-eth2,foo1-eth2,foo2-eth2,foo3-eth2,foo4-eth2"),
    ("foo1,foo1,foo1", "foo1,foo1,foo1"),
    ("[00-02]", "00,01,02"),
    ("[00-2]", "00,01,02"),
    ("foo[1,1,2,1]", "foo1,foo1,foo2,foo1"),
]

names = st.one_of(
    st.builds(
        "{}{:0{}d}".format,
        st.sampled_from(["n", "", "rack1-"]),
        st.integers(0, 12),
        st.integers(1, 3),
    ),
    st.from_regex(r"[!-+\--Z\\^-~]{1,9}", fullmatch=True),
    st.sampled_from(["n" + "9" * 30, "9" * 18, "0" * 19, "login"]),
)


@pytest.mark.parametrize(("text", "expanded"), VECTORS)
def test_vectors_of_the_rfc(text: str, expanded: str) -> None:
    """29.hostlist.11: all nine expand exactly as listed."""
    hosts = Hostlist.parse(text)
    assert list(hosts) == (expanded.split(",") if expanded else [])
    assert Hostlist.parse(expanded) == hosts
    assert Hostlist.parse(str(hosts)) == hosts


@given(st.lists(names, max_size=30))
def test_printed_lists_parse_back_in_order(hosts: list[str]) -> None:
    """29.hostlist.1: order and repeats are kept."""
    hostlist = Hostlist.of(hosts)
    assert list(hostlist) == hosts
    assert Hostlist.parse(str(hostlist)) == hostlist
    assert Hostlist.parse(",".join(hosts)) == hostlist


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ("node0,node1,node2,node3,node7,login1", "node[0-3,7],login1"),
        ("n8,n9,n10", "n[8-10]"),
        ("n08,n09,n10", "n[08-10]"),
        ("n1,n02", "n1,n02"),
        ("n02,n1", "n02,n1"),
        ("n10,n09", "n10,n09"),
        ("n099,n100,n1000", "n[099-100,1000]"),
        ("n3,n2,n1", "n[3,2,1]"),
        ("n1,x,n2", "n1,x,n2"),
        ("n1,m2", "n1,m2"),
        ("0,1", "[0-1]"),
        ("n" + "9" * 17 + "8,n" + "9" * 18, "n[" + "9" * 17 + "8-" + "9" * 18 + "]"),
        ("n" + "1" * 19 + ",n" + "1" * 18 + "2", "n" + "1" * 19 + ",n" + "1" * 18 + "2"),
    ],
)
def test_lists_print_compressed(hosts: str, text: str) -> None:
    """29.hostlist.7, 29.hostlist.10: runs become ranges, inside brackets, with their padding."""
    assert str(Hostlist.parse(hosts)) == text
    assert ",".join(Hostlist.parse(text)) == hosts


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a[1,3],b[2-3]x,c", ["a1", "a3", "b2x", "b3x", "c"]),
        ("[1]b,,c", ["1b", "c"]),
        (",a,", ["a"]),
        (",", []),
        ("", []),
    ],
)
def test_expressions_are_separated_by_commas_outside_brackets(
    text: str, expanded: list[str]
) -> None:
    """29.hostlist.2, 29.hostlist.3, 29.hostlist.4: an empty expression is an empty list."""
    assert value_or_error(lambda: list(Hostlist.parse(text))) == expanded


@pytest.mark.parametrize(
    "text", ["a b", " a", "a\n", "a]", "a[", "é", "a\x7f", "a\tb", "a[1]b[2]", "a[1][2]", "[[1]]"]
)
def test_other_characters_are_refused_in_a_name(text: str) -> None:
    """29.hostlist.5: printable ASCII without blank, comma or brackets."""
    with pytest.raises(FormatError):
        Hostlist.parse(text)
    with pytest.raises(FormatError):
        Hostlist.of(["ok", text])


@pytest.mark.parametrize("name", ["", "a,b", "a[1]"])
def test_a_list_of_names_takes_no_expressions(name: str) -> None:
    with pytest.raises(FormatError, match="a host name"):
        Hostlist.of([name])


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("[5,4,10,11,12,13]", "5,4,10,11,12,13"),
        ("[5,4,11-13]", "5,4,11,12,13"),
        ("[2,2,2]", "2,2,2"),
        ("[2-2]", "2"),
        ("[005,4,11-13]", "005,004,011,012,013"),
        ("[005,04]", "005,004"),
        ("[1,02]", "1,02"),
        ("[98-102]", "98,99,100,101,102"),
        ("[098-102]", "098,099,100,101,102"),
    ],
)
def test_id_lists_keep_order_repeats_and_padding(text: str, expanded: str) -> None:
    """29.hostlist.6, 29.hostlist.8, 29.hostlist.9: the first element's zeros are for all."""
    assert ",".join(Hostlist.parse(text)) == expanded


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("n[001-003,5]", "n001,n002,n003,n5"),
        ("n[005,4,11-13]", "n005,n4,n11,n12,n13"),
        ("n[1,02]", "n1,n02"),
        ("n[098-102]", "n098,n099,n100,n101,n102"),
    ],
)
def test_each_element_may_have_its_own_padding(text: str, expanded: str) -> None:
    """readings: Hostlist widths. As flux-core has it."""
    assert ",".join(Hostlist.parse(text, own_widths=True)) == expanded


@given(st.lists(st.from_regex(r"n[0-9]{1,4}", fullmatch=True), max_size=30))
def test_what_is_written_reads_the_same_with_either_padding(hosts: list[str]) -> None:
    """readings: Hostlist widths."""
    text = str(Hostlist.of(hosts))
    assert list(Hostlist.parse(text)) == list(Hostlist.parse(text, own_widths=True)) == hosts


@pytest.mark.parametrize(
    "idlist", ["", "1,", ",1", "1-", "-1", "3-1", "1--2", "1-2-3", "a", "1 ", "1-02", "9" * 19]
)
def test_broken_id_lists_are_refused(idlist: str) -> None:
    """29.hostlist.6: non-negative integers only."""
    with pytest.raises(FormatError):
        Hostlist.parse(f"n[{idlist}]")


@pytest.mark.parametrize(
    "text", ["n[0-999999999]", f"n[0-{HOSTS_MAX}]", f"a[0-{HOSTS_MAX - 1}],b", "n[1-9,0-99999999]"]
)
def test_more_hosts_than_the_bound_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="at most 262144 hosts"):
        Hostlist.parse(text)


def test_as_many_hosts_as_the_bound_are_taken() -> None:
    assert len(Hostlist.parse(f"n[0-{HOSTS_MAX - 3}],a,b")) == HOSTS_MAX
    assert len(Hostlist.parse(f"n[0-{HOSTS_MAX - 3},0-1]")) == HOSTS_MAX


def test_host_names_beyond_the_bound_are_refused() -> None:
    for text in ("x" * 255, "x" * 254 + "[1-1]"):
        assert len(Hostlist.parse(text)) == 1
    for text in ("x" * 256, "x" * 254 + "[1-10]", "x" * 10**5 + f"[0-{HOSTS_MAX - 1}]"):
        with pytest.raises(FormatError, match="at most 255 characters"):
            Hostlist.parse(text)


def test_a_list_is_a_sequence_and_a_value() -> None:
    hosts = Hostlist.parse("n[0-3]")
    assert (hosts[0], hosts[-1], hosts[1:3]) == ("n0", "n3", Hostlist.parse("n[1-2]"))
    assert "n2" in hosts
    assert hosts.index("n2") == 2
    assert {hosts: 1}[Hostlist.of(["n0", "n1", "n2", "n3"])] == 1
    assert hosts != ("n0", "n1", "n2", "n3")
    assert repr(hosts) == "Hostlist('n[0-3]')"


@pytest.mark.parametrize("value", [None, 5, ["n1"]])
def test_only_a_string_is_a_hostlist_string(value: object) -> None:
    with pytest.raises(FormatError, match="a hostlist such as"):
        Hostlist.parse(value)
