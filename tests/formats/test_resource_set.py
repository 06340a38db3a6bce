import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import FormatError, Group, Hostlist, Idset, ResourceSet, parse_r

RECORDED = json.loads((Path(__file__).parents[1] / "data/resource_sets/recorded.json").read_text())
# The example of RFC 20 as its prose tells it: four nodes of 48 cores and 8 gpus, 8 slots each.
EXAMPLE = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "19-22", "children": {"core": "0-47", "gpu": "0-7"}}],
        "nodelist": ["node[186-189]"],
        "nslots": 32,
        "starttime": 1676560542,
        "expiration": 1676562342,
    },
}


def r_object(*entries: object, **execution: object) -> dict[str, Any]:
    """R with this R_lite (ranks 0-3 if none) and other keys of execution; None removes one."""
    whole: dict[str, object] = {
        "R_lite": list(entries) or [entry("0-3", "0-3")],
        "nodelist": ["node[0-3]"],
        **execution,
    }
    return {
        "version": 1,
        "execution": {key: value for key, value in whole.items() if value is not None},
    }


def entry(rank: object, core: object, **children: object) -> dict[str, object]:
    return {"rank": rank, "children": {"core": core, **children}}


def complaint(value: object) -> str:
    with pytest.raises(FormatError) as caught:
        ResourceSet.parse(value)
    return str(caught.value)


def test_the_example_of_the_rfc() -> None:
    """20.example.1, 20.goals.1, 20.goals.2: four targets, 192 cores, 32 gpus, and their hosts."""
    example = ResourceSet.parse(EXAMPLE)
    assert str(example.ranks) == "19-22"
    assert (example.nnodes, example.ncores, example.ngpus) == (4, 192, 32)
    assert example.hostname(20) == "node187"
    assert (str(example.cores(22)), str(example.gpus(22))) == ("0-47", "0-7")
    assert example.nslots == 32
    assert example.expiration - example.starttime == 1800
    assert example.summary() == "rank[19-22]/core[0-47],gpu[0-7]"


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: each.get("summary", "inventory"))
def test_recorded_r_is_printed_as_it_came(recorded: dict[str, Any]) -> None:
    resources = ResourceSet.parse(recorded["R"])
    execution = recorded["R"]["execution"]
    # flux-core spells a repeated host out; in brackets it is the same list.
    nodelist = [str(Hostlist.parse(hosts)) for hosts in execution["nodelist"]]
    assert resources.to_json() == {"version": 1, "execution": {**execution, "nodelist": nodelist}}
    assert resources.summary() == recorded.get("summary", resources.summary())


def test_key_order_is_that_of_flux_core() -> None:
    recorded = next(each["R"] for each in RECORDED if "properties" in each["R"]["execution"])
    assert json.dumps(ResourceSet.parse(recorded).to_json()) == json.dumps(recorded)


def test_r_may_be_given_as_bytes_but_not_as_a_string() -> None:
    """20.format.1: R is an object, not an array and not JSON within JSON."""
    text = json.dumps(EXAMPLE)
    assert ResourceSet.parse(text.encode()) == ResourceSet.parse(EXAMPLE)
    assert complaint(text).startswith("expected an object, got ")
    assert complaint([EXAMPLE]).startswith("expected an object, got [")
    assert complaint(b"{").startswith("expected a JSON object, got bytes that are not JSON")
    assert complaint(b"[" * 100_000).startswith("expected a JSON object, got bytes that are not")
    assert complaint({1: 2}) == "expected an object, got {1: 2}"


@pytest.mark.parametrize("version", [None, "1", 2, 0, True, 1.0])
def test_the_version_is_the_integer_1(version: object) -> None:
    """20.format.2: other values are refused."""
    assert complaint({**EXAMPLE, "version": version}).startswith("version: expected the integer 1")


def test_a_missing_version_is_refused() -> None:
    """20.format.2: version is required."""
    r = {"execution": EXAMPLE["execution"]}
    assert complaint(r) == "version: expected the integer 1, got nothing"


@pytest.mark.parametrize(
    ("r", "text"),
    [
        ({"version": 1}, "execution: expected an object, got nothing"),
        ({"version": 1, "execution": []}, "execution: expected an object, got []"),
        (r_object(R_lite=None), "execution.R_lite: expected an array, got nothing"),
        (r_object(R_lite={}), "execution.R_lite: expected an array, got {}"),
        (
            r_object(R_lite=[], nodelist=[]),
            "execution.R_lite: expected an array that names at least one rank, got []",
        ),
        (r_object("0"), 'execution.R_lite[0]: expected an object, got "0"'),
    ],
)
def test_execution_and_r_lite_are_required(r: object, text: str) -> None:
    """20.format.3, 20.format.4: execution is an object, R_lite an array that names targets."""
    assert complaint(r) == text


@pytest.mark.parametrize(
    ("rank", "text"),
    [
        (0, "expected a string, got 0"),
        ("", 'expected an idset with at least one id, got ""'),
        ("1-0", 'expected an idset in ascending order, each id once, got "1-0"'),
        ("node0", 'expected an idset such as "0-3,7", got "node0"'),
    ],
)
def test_rank_is_an_idset_of_at_least_one_target(rank: object, text: str) -> None:
    """20.format.6: no integer, no empty string, nothing that is not an idset."""
    r = r_object(entry("0-3", "0"), entry(rank, "0"))
    assert complaint(r) == f"execution.R_lite[1].rank: {text}"


def test_rank_is_required() -> None:
    """20.format.6: rank is required."""
    r = r_object({"children": {"core": "0"}})
    assert complaint(r) == "execution.R_lite[0].rank: expected a string, got nothing"


@pytest.mark.parametrize(
    ("children", "text"),
    [
        (None, "children: expected an object, got None"),
        ({}, "children.core: expected a string, got nothing"),
        ({"core": 4}, "children.core: expected a string, got 4"),
        ({"core": ""}, 'children.core: expected an idset with at least one id, got ""'),
        ({"core": "0", "gpu": 1}, "children.gpu: expected a string, got 1"),
        ({"core": "0", "gpu": ""}, 'children.gpu: expected an idset with at least one id, got ""'),
        (
            {"core": "0", "gpus": "0"},
            'children: expected only the keys core, gpu, got the key "gpus"',
        ),
    ],
)
def test_children_are_idsets_of_cores_and_gpus(children: object, text: str) -> None:
    """20.format.7, 20.format.8, 20.format.9, 20.overview.1: ids, never counts; core is required."""
    r = r_object({"rank": "0-3", "children": children})
    assert complaint(r) == f"execution.R_lite[0].{text}"


def test_gpus_are_optional_and_have_their_own_key() -> None:
    """20.format.9, 20.goals.4: nodes, cores and gpus are simple keys."""
    mixed = ResourceSet.parse(r_object(entry("0-1", "0-3", gpu="0-1"), entry("2-3", "0-3")))
    assert (mixed.ncores, mixed.ngpus) == (16, 4)
    assert [str(mixed.gpus(rank)) for rank in (1, 2, 7)] == ["0-1", "", ""]


def test_the_grow_example_of_rfc_28_is_refused() -> None:
    """20.format.4, 20.format.8: its R_lite is an object with empty children, without a nodelist."""
    grow = {
        "version": 1,
        "scheduling": {},
        "attributes": {},
        "execution": {"R_lite": {"rank": "1-6", "children": {}}},
    }
    assert complaint(grow).startswith("execution.R_lite: expected an array, got {")


def test_the_order_of_r_lite_means_nothing() -> None:
    """20.format.5, 20.nodelist.3: hosts follow the sorted ranks, not the entries."""
    entries = [entry("3", "0-1"), entry("0,2", "0-3"), entry("1", "7")]
    r = ResourceSet.parse(r_object(*entries))
    assert r == ResourceSet.parse(r_object(*reversed(entries)))
    assert r.hosts == {0: "node0", 1: "node1", 2: "node2", 3: "node3"}
    assert r.summary() == "rank[0,2]/core[0-3] rank1/core7 rank3/core[0-1]"


def test_a_target_in_several_entries_holds_their_union() -> None:
    """20.format.10: its cores are not counted twice, and it has one host."""
    r = ResourceSet.parse(
        r_object(
            entry("0-1", "0-1"), entry("1-2", "1-3", gpu="0"), entry("1", "0"), nodelist=["n[0-2]"]
        )
    )
    assert r.summary() == "rank0/core[0-1] rank1/core[0-3],gpu0 rank2/core[1-3],gpu0"
    assert (r.nnodes, r.ncores, r.ngpus) == (3, 9, 2)


@pytest.mark.parametrize(
    ("nodelist", "text"),
    [
        (None, "nodelist: expected an array, got nothing"),
        ("node[0-3]", 'nodelist: expected an array, got "node[0-3]"'),
        ([0, "node[1-3]"], "nodelist[0]: expected a string, got 0"),
        (["node[0-2]"], "nodelist: expected 4 hosts, one for each rank, got 3"),
        ([], "nodelist: expected 4 hosts, one for each rank, got 0"),
        (["node[0-3]", "x"], "nodelist: expected 4 hosts, one for each rank, got more than 4"),
        (["node[0-9]", "["], "nodelist: expected 4 hosts, one for each rank, got more than 4"),
    ],
)
def test_nodelist_names_one_host_for_each_target(nodelist: object, text: str) -> None:
    """20.nodelist.1, 20.nodelist.3, 20.goals.3: an array of strings, as many hosts as targets."""
    assert complaint(r_object(nodelist=nodelist)) == f"execution.{text}"


def test_a_malformed_hostlist_is_refused() -> None:
    """20.nodelist.2: each entry is a host name or a hostlist."""
    assert complaint(r_object(nodelist=["node0", "node[1-3"])).startswith("execution.nodelist[1]: ")


@pytest.mark.parametrize("nodelist", [["node[0-3]"], ["node0", "node[1-2],node3"]])
def test_nodelist_and_r_lite_may_differ_in_length(nodelist: list[str]) -> None:
    """20.nodelist.2, 20.nodelist.4: one entry of one may cover many of the other."""
    r = ResourceSet.parse(r_object(entry("0-1", "0"), entry("2-3", "1"), nodelist=nodelist))
    assert r.hostnames == ("node0", "node1", "node2", "node3")


@pytest.mark.parametrize("nslots", ["4", 4.0, True, 0, -1, None])
def test_nslots_is_a_positive_integer(nslots: object) -> None:
    """20.nslots.1, 20.nslots.4: an integer greater than 0."""
    r = r_object()
    r["execution"]["nslots"] = nslots
    assert complaint(r).startswith("execution.nslots: expected an integer of at least 1, got ")


def test_r_that_is_no_allocation_has_no_nslots() -> None:
    """20.nslots.1, 20.nslots.2: it may be absent, and then is not printed."""
    inventory = ResourceSet.parse(r_object())
    assert inventory.nslots is None
    assert "nslots" not in str(inventory.to_json())
    assert "'nslots': 2" in str(inventory.with_nslots(2).to_json())
    with pytest.raises(FormatError):
        inventory.with_nslots(0)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (["ssd"], "properties: expected an object, got ['ssd']"),
        ({"ssd": ["0"]}, "properties.ssd: expected a string, got ['0']"),
        ({"ssd": "node0"}, 'properties.ssd: expected an idset such as "0-3,7", got "node0"'),
        ({"ssd": "2-5"}, "properties.ssd: expected ranks that R_lite names, got also 4-5"),
    ],
)
def test_properties_map_names_to_targets(properties: object, text: str) -> None:
    """20.properties.1, 20.properties.2: one idset of execution targets for each name."""
    assert complaint(r_object(properties=properties)) == f"execution.{text}"


def test_a_target_may_have_several_properties() -> None:
    """20.properties.3, 20.goals.7: overlapping idsets; R answers who has a property."""
    r = ResourceSet.parse(r_object(properties={"big": "0-1", "fast": "1-2"}))
    assert r.properties == {"big": Idset.parse("0-1"), "fast": Idset.parse("1-2")}
    assert str(r.ranks_with_property("fast")) == "1-2"
    assert not r.ranks_with_property("slow")


@pytest.mark.parametrize("name", ["größe", "中", "a b", "+q", "a-b.c/d:e"])
def test_property_names_may_be_any_utf_8(name: str) -> None:
    """20.properties.4: not ASCII alone."""
    r = r_object(properties={name: "0"})
    assert ResourceSet.parse(json.dumps(r).encode()).to_json()["execution"]["properties"] == {
        name: "0"
    }


@pytest.mark.parametrize("name", [*(f"a{char}b" for char in "!&'\"^`|()"), "^x", "", "\ud800"])
def test_illegal_property_names(name: str) -> None:
    """20.properties.4, 20.properties.5: none of the nine characters, and valid UTF-8."""
    text = complaint(r_object(properties={name: "0"}))
    assert text.startswith("execution.properties: expected a property name in UTF-8 without any of")


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    """20.properties.4: invalid bytes are no name."""
    text = json.dumps(r_object(properties={"XX": "0"})).encode().replace(b"XX", b"\xff\xfe")
    assert complaint(text).startswith("expected a JSON object, got bytes that are not JSON")


def test_a_property_with_a_suffix_applies_under_its_literal_name() -> None:
    """20.properties.6, 20.properties.8: amd-mi50@gpu is a name beside amd-mi50."""
    r = ResourceSet.parse(r_object(properties={"amd-mi50@gpu": "0-1", "amd-mi50": "1-2"}))
    assert str(r.ranks_with_property("amd-mi50@gpu")) == "0-1"
    assert str(r.ranks_with_property("amd-mi50")) == "1-2"


@pytest.mark.parametrize("key", ["starttime", "expiration"])
@pytest.mark.parametrize("value", ["0", True, None, -1, float("nan"), float("inf"), 1 << 60])
def test_times_are_numbers(key: str, value: object) -> None:
    """20.starttime.1, 20.expiration.1: a finite number of seconds."""
    r = r_object()
    r["execution"][key] = value
    assert complaint(r).startswith(f"execution.{key}: expected a number of seconds, at least 0")


@pytest.mark.parametrize("unset", [{}, {"starttime": 0, "expiration": 0.0}, {"starttime": 0.0}])
def test_zero_and_absent_times_are_unset(unset: dict[str, object]) -> None:
    """20.starttime.1, 20.starttime.2, 20.expiration.1, 20.expiration.3: 0, 0.0, no key."""
    r = ResourceSet.parse(r_object(**unset))
    assert (r.starttime, r.expiration) == (0.0, 0.0)
    assert r == ResourceSet.parse(r_object())


def test_times_keep_their_microseconds() -> None:
    """20.starttime.3, 20.expiration.4: seconds since the epoch with optional microseconds."""
    times = {"starttime": 1676560542.123456, "expiration": 1676562342.654321}
    execution = ResourceSet.parse(r_object(**times)).to_json()["execution"]
    assert {key: execution[key] for key in times} == times


@pytest.mark.parametrize("expiration", [10.0, 9.5])
def test_expiration_is_after_starttime(expiration: float) -> None:
    """20.expiration.5: if both are set."""
    text = complaint(r_object(starttime=10, expiration=expiration))
    expected = f"expected a time after starttime 10.0, got {expiration}"
    assert text == f"execution.expiration: {expected}"
    assert ResourceSet.parse(r_object(starttime=0, expiration=expiration)).expiration == expiration
    assert ResourceSet.parse(r_object(starttime=10, expiration=0)).starttime == 10
    with pytest.raises(FormatError):
        ResourceSet.parse(r_object()).with_times(10.0, expiration)


def with_scheduling(scheduling: object) -> dict[str, Any]:
    return {**r_object(), "scheduling": scheduling}


@pytest.mark.parametrize(
    ("scheduling", "text"),
    [
        ([], "scheduling: expected an object, got []"),
        ({"writer": {}}, "scheduling.writer: expected a URI that begins with a scheme, got {}"),
        (
            {"writer": "//h"},
            'scheduling.writer: expected a URI that begins with a scheme, got "//h"',
        ),
        ({"writer": ""}, 'scheduling.writer: expected a URI that begins with a scheme, got ""'),
    ],
)
def test_scheduling_is_an_object_with_a_writer(scheduling: object, text: str) -> None:
    """20.scheduling.1, 20.scheduling.2: writer, if there is one, is a URI with a scheme."""
    assert complaint(with_scheduling(scheduling)) == text


@pytest.mark.parametrize(
    ("scheduling", "writer"),
    [({}, "fluxion"), ({"writer": "fluxion"}, "fluxion"), ({"writer": "x:?!@ %"}, "x:?!@ %")],
)
def test_the_rest_of_the_writer_is_nobodys_business(scheduling: object, writer: str) -> None:
    """20.scheduling.2, 20.scheduling.3, 20.scheduling.4: fluxion is assumed; no more is parsed."""
    assert ResourceSet.parse(with_scheduling(scheduling)).writer == writer
    assert ResourceSet.parse(r_object()).writer is None


def test_scheduling_rides_along_untouched() -> None:
    """20.scheduling.5, 20.scheduling.6, 20.goals.5: through every operation, whatever it holds."""
    scheduling = {"graph": {"nodes": [{"id": "0", "metadata": {"name": "node0"}}]}, "x": None}
    r = ResourceSet.parse(with_scheduling(scheduling))
    for other in (r, r.restrict(Idset.parse("1")), r.rerank(), r.difference(r), r.with_times(1, 2)):
        assert other.scheduling == scheduling
    assert r.to_json()["scheduling"] == scheduling
    assert "scheduling" not in r.with_scheduling(None).to_json()


def test_other_keys_are_ignored() -> None:
    r = {**r_object(entry("0-3", "0") | {"extra": 1}, extra=2), "attributes": {}}
    assert ResourceSet.parse(r) == ResourceSet.parse(r_object(entry("0-3", "0")))


def test_the_place_of_an_error_begins_where_the_caller_says() -> None:
    with pytest.raises(FormatError, match=r"^payload\.resources\.version: expected the integer 1"):
        ResourceSet.parse({}, "payload.resources")


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
    with pytest.raises(ValueError, match="but 0-3 has gpus alone"):
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
