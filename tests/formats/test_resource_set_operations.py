"""Resource sets (RFC 20): other ranks and hosts, set operations, and what is printed."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import FormatError, Group, Hostlist, Idset, ResourceSet, format_r, parse_r
from flux_trio.policies.shape import Allocation
from flux_trio.testing.strategies import resource_sets
from tests.support.resource_sets import EXAMPLE, entry, r_object

# Ranks and hosts


def test_reranking_numbers_targets_from_zero_and_keeps_hosts() -> None:
    """20.rerank.1, 20.scheduling.7: ranks 19-22 become 0-3, and only host names still fit."""
    example = ResourceSet.parse(EXAMPLE).rerank()
    assert example.summary() == "rank[0-3]/core[0-47],gpu[0-7]"
    assert example.hosts == {0: "node186", 1: "node187", 2: "node188", 3: "node189"}
    assert (example.nslots, example.starttime) == (32, 1676560542)


def test_reranking_can_follow_the_hosts_of_the_new_ranks() -> None:
    """20.rerank.1: broker ranks of the new instance need not be in the old order."""
    r = ResourceSet.parse(
        r_object(
            entry("3", "0"), entry("5-6", "1"), nodelist=["a,b,b"], properties={"p": "3", "q": "5"}
        )
    ).rerank(Hostlist.parse("b,a,b"))
    assert r.summary() == "rank[0,2]/core1 rank1/core0"
    assert r.hostnames == ("b", "a", "b")
    assert {name: str(ids) for name, ids in r.properties.items()} == {"p": "1", "q": "0"}


@pytest.mark.parametrize("hosts", [["node0"], ["node0", "node1", "node2", "x"], ["node0"] * 4])
def test_reranking_to_other_hosts_is_refused(hosts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^expected (4|the) hosts"):
        ResourceSet.parse(r_object()).rerank(hosts)


def test_hosts_join_the_sets_of_two_instances() -> None:
    """20.rerank.2: a rank is a node only within its instance, a host name everywhere."""
    parent = ResourceSet.parse(EXAMPLE)
    child = parent.restrict(Idset.parse("20-21")).rerank()
    assert str(child.ranks) == "0-1"
    assert str(parent.ranks_of_hosts(Hostlist.of(child.hostnames))) == "20-21"


def test_several_ranks_may_share_a_host() -> None:
    r = ResourceSet.parse(r_object(nodelist=["node0,node0,node1,node0"]))
    assert str(r.ranks_of_hosts(["node0", "elsewhere"])) == "0-1,3"


def test_a_rank_that_is_not_there_has_no_host() -> None:
    with pytest.raises(KeyError):
        ResourceSet.parse(EXAMPLE).hostname(18)


# Building


def test_building_groups_identical_nodes_and_reduces_properties() -> None:
    inventory = ResourceSet.parse(r_object(properties={"big": "0-1", "fast": "1-2"}))
    built = ResourceSet.build(
        [(2, 0b11, 0), (3, 0b1, 0b1), (1, 0b11, 0)],
        inventory.hostname,
        properties=inventory.properties,
        nslots=3,
        starttime=5.0,
        expiration=65.0,
    )
    assert built.to_json()["execution"] == {
        "R_lite": [entry("1-2", "0-1"), entry("3", "0", gpu="0")],
        "starttime": 5.0,
        "expiration": 65.0,
        "nslots": 3,
        "nodelist": ["node[1-3]"],
        "properties": {"big": "1", "fast": "1-2"},
    }
    assert ResourceSet.parse(built.to_json()) == built


def test_size_grows_with_patterns_not_with_nodes() -> None:
    """20.goals.6: identical nodes share one R_lite entry and one hostlist."""
    nodes = [(rank, (1 << 128) - 1, 0) for rank in range(16_384)]
    execution = ResourceSet.build(nodes, lambda rank: f"node{rank}").to_json()["execution"]
    assert execution["R_lite"] == [entry("0-16383", "0-127")]
    assert execution["nodelist"] == ["node[0-16383]"]


def test_what_version_1_cannot_say_is_not_printed() -> None:
    """20.format.4, 20.format.8: no R without targets, no target without cores."""
    r = ResourceSet.parse(r_object(entry("0-3", "0-3", gpu="0")))
    nothing = r.difference(r)
    assert (bool(nothing), nothing.hostnames, nothing.summary()) == (False, (), "")
    with pytest.raises(ValueError, match="this resource set is empty"):
        nothing.to_json()
    gpus = r.difference(ResourceSet.parse(r_object()))
    assert gpus.summary() == "rank[0-3]/gpu0"
    with pytest.raises(ValueError, match="but 0-3 has only gpus"):
        gpus.to_json()


# Set operations, against sets of (rank, kind, id)

Item = tuple[int, str, int]
BITS = st.integers(0, 7)
ITEMS = st.dictionaries(st.integers(0, 5), st.tuples(BITS, BITS), max_size=6)


def built(nodes: dict[int, tuple[int, int]]) -> ResourceSet:
    entries = [(rank, cores, gpus) for rank, (cores, gpus) in nodes.items()]
    return ResourceSet.build(entries, lambda rank: f"n{rank}", properties={"odd": ODD})


ODD = Idset.of([1, 3, 5])


def items(resources: ResourceSet) -> set[Item]:
    kinds: Iterable[tuple[str, Callable[[int], Idset]]] = (
        ("core", resources.cores),
        ("gpu", resources.gpus),
    )
    return {
        (rank, kind, id_) for rank in resources.ranks for kind, ids in kinds for id_ in ids(rank)
    }


def check(result: ResourceSet, expected: set[Item]) -> None:
    """The result holds what is expected, is canonical, and its hosts and properties fit."""
    ranks = sorted({rank for rank, _, _ in expected})
    assert items(result) == expected
    assert list(result.ranks) == ranks
    assert result.hosts == {rank: f"n{rank}" for rank in ranks}
    odd = ODD & Idset.of(ranks)
    assert result.properties == ({"odd": odd} if odd else {})
    rebuilt = ResourceSet.build(
        [(rank, result.cores(rank).bits, result.gpus(rank).bits) for rank in ranks],
        result.hostname,
        properties=result.properties,
    )
    assert result == rebuilt
    assert hash(result) == hash(rebuilt)


@given(ITEMS, ITEMS)
def test_set_operations_agree_with_sets(
    a: dict[int, tuple[int, int]], b: dict[int, tuple[int, int]]
) -> None:
    left, right = built(a), built(b)
    these, those = items(left), items(right)
    check(left.union(right), these | those)
    check(left.intersection(right), these & those)
    check(left.difference(right), these - those)
    assert left.is_disjoint(right) == these.isdisjoint(those)
    assert left.issubset(right) == (these <= those)
    assert (left == right) == (these == those)
    assert (left.ncores, left.ngpus) == tuple(
        sum(kind == wanted for _, kind, _ in these) for wanted in ("core", "gpu")
    )


@given(ITEMS, st.sets(st.integers(0, 5)))
def test_restricting_agrees_with_sets(nodes: dict[int, tuple[int, int]], ranks: set[int]) -> None:
    whole = built(nodes)
    check(whole.restrict(Idset.of(ranks)), {item for item in items(whole) if item[0] in ranks})
    check(whole.without_ranks(Idset.of(ranks)), {i for i in items(whole) if i[0] not in ranks})


@given(st.dictionaries(st.integers(0, 5), st.tuples(st.integers(1, 7), BITS), min_size=1))
def test_what_is_printed_parses_to_the_same(nodes: dict[int, tuple[int, int]]) -> None:
    resources = built(nodes).with_nslots(2).with_times(1.5, 3.25)
    assert ResourceSet.parse(resources.to_json()) == resources
    assert ResourceSet.parse(json.dumps(resources.to_json()).encode()) == resources


def test_a_union_of_sets_that_disagree_about_a_host_is_refused() -> None:
    one = ResourceSet.parse(r_object())
    other = ResourceSet.parse(r_object(nodelist=["other[0-3]"]))
    with pytest.raises(ValueError, match="rank 0 is node0 in one set and other0 in the other"):
        one.union(other)


def test_the_left_side_gives_times_and_no_slots() -> None:
    allocation = ResourceSet.parse(EXAMPLE)
    part = allocation.restrict(Idset.parse("20"))
    assert (part.starttime, part.expiration, part.nslots) == (1676560542, 1676562342, None)


def test_groups_are_in_order_of_their_lowest_rank() -> None:
    r = ResourceSet.parse(r_object(entry("1,3", "0"), entry("0,2", "1")))
    assert r.groups == (Group(0b0101, 0b10, 0), Group(0b1010, 0b1, 0))


def test_r_that_is_read_again_is_read_once() -> None:
    text = json.dumps(EXAMPLE)
    assert parse_r(text) is parse_r(text)
    assert parse_r(text) == ResourceSet.parse(EXAMPLE)
    with pytest.raises(FormatError, match=r"^R\.version: expected the integer 1"):
        parse_r("{}")


def test_r_that_was_written_is_read() -> None:
    written = ResourceSet.parse(EXAMPLE).with_nslots(5)
    text = format_r(written)
    read = parse_r(text)
    assert read == written
    assert read is not written


UNREADABLE: dict[str, dict[str, Any]] = {
    "starttime -5": {"starttime": -5.0},
    "expiration inf": {"expiration": math.inf},
    "expiration NaN": {"expiration": math.nan},
    "property a!b": {"properties": {"a!b": Idset.parse("0")}},
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_r_that_no_reader_accepts_is_refused_while_its_writer_holds_it(what: str) -> None:
    """The reader of a text judges the text alone, also in the writer's own process."""
    written = ResourceSet.build([(0, 1, 0)], "node{}".format, **UNREADABLE[what])
    text = format_r(written)
    with pytest.raises(FormatError) as from_text:
        ResourceSet.parse(text.encode(), "R")
    with pytest.raises(FormatError) as refused:
        parse_r(text)
    assert str(refused.value) == str(from_text.value)


@given(resource_sets(), st.integers(0, 255), st.floats(0, 2**40), st.floats(0, 2**40))
def test_r_that_is_granted_is_what_its_text_says(
    inventory: ResourceSet, ranks: int, start: float, lasts: float
) -> None:
    part = inventory.restrict(Idset.from_bits(ranks & inventory.ranks.bits) or inventory.ranks)
    end = start + lasts if lasts >= 1 else 0.0
    granted = Allocation.of(part.with_nslots(3)).resource_set(
        inventory.hosts, {"p": inventory.ranks}, start, end
    )
    read = parse_r(format_r(granted))
    assert read == granted
    assert read is not granted
