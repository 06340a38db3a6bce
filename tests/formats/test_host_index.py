"""Ranks of hosts by names and ranges, against the names that the ranges stand for."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import HostRange, Idset
from flux_trio.formats.host_index import HostIndex
from flux_trio.formats.hostlist import host_parts

MACHINE = dict(enumerate([f"n{i}" for i in range(64)]))


def named(hosts: Mapping[int, str], asked: HostRange) -> Idset:
    names = set(asked.names())
    return Idset.of(rank for rank, host in hosts.items() if host in names)


def found(hosts: Mapping[int, str], text: str) -> str:
    return str(Idset.from_bits(HostIndex(hosts).ranks(host_parts(text))))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("n[5-9]", "5-9"),
        ("n[60-200000]", "60-63"),
        ("n1[0-5]", "10-15"),  # the id is a part of the number
        ("n1[5-20]", "15-19"),
        ("n[1-3]0", "10,20,30"),
        ("n[0-9]", "0-9"),
        ("n[00-09]", ""),  # other names
        ("n7,n[3-4],m[0-9]", "3-4,7"),
        ("", ""),
    ],
)
def test_ranges_of_hosts(text: str, ranks: str) -> None:
    assert found(MACHINE, text) == ranks


def test_padded_numbers() -> None:
    hosts = dict(enumerate(f"n{i:03}" for i in range(1, 12)))
    assert found(hosts, "n[001-003]") == "0-2"
    assert found(hosts, "n[1-100]") == ""
    assert found(hosts, "n[008-2000]") == "7-10"


def test_hosts_in_an_order_of_their_own() -> None:
    hosts = {0: "n3", 1: "n2", 5: "n1", 6: "rack2n4-ib", 7: "rack3n4-ib", 8: "n1"}
    assert found(hosts, "n[1-2]") == "1,5,8"  # two ranks on one host
    assert found(hosts, "rack[0-2]n4-ib,rack3n[0-9]-ib") == "6-7"


def texts(characters: str) -> st.SearchStrategy[str]:
    return st.text(characters, max_size=3)


ranges = st.builds(
    lambda prefix, first, more, width, suffix: HostRange(
        prefix, first, first + more, width, suffix
    ),
    texts("n01"),
    st.integers(0, 1200),
    st.integers(1, 300),
    st.integers(1, 4),
    texts("n01"),
)
machines = st.lists(
    st.one_of(
        st.text("n01", min_size=1, max_size=7),
        st.integers(0, 1300).map("n{}".format),
        st.integers(0, 1300).map("n{:03}".format),
    ),
    max_size=40,
).map(lambda names: dict(enumerate(names)))


@given(machines, ranges)
def test_a_range_finds_what_its_names_find(hosts: dict[int, str], asked: HostRange) -> None:
    index = HostIndex(hosts)
    assert Idset.from_bits(index.ranks([asked])) == named(hosts, asked)


@given(ranges, st.sampled_from([0, 400, 950]))
def test_a_range_finds_what_its_names_find_on_an_ordered_machine(
    asked: HostRange, first: int
) -> None:
    hosts = {rank: f"{asked.prefix}{first + rank}{asked.suffix}" for rank in range(300)}
    index = HostIndex(hosts)
    assert Idset.from_bits(index.ranks([asked])) == named(hosts, asked)
