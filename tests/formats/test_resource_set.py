import json
import re
from pathlib import Path
from typing import Any

import pytest

from flux_trio.formats import FormatError, Hostlist, Idset, ResourceSet
from tests.support.resource_sets import EXAMPLE, entry, r_object

RECORDED = json.loads((Path(__file__).parents[1] / "data/resource_sets/recorded.json").read_text())


def complaint(value: object) -> str:
    """The error of R as an object; that of its text, if JSON can hold it, is the same."""
    with pytest.raises(FormatError) as caught:
        ResourceSet.parse(value)
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError):
        return str(caught.value)
    if isinstance(value, dict) and json.loads(text) == value:
        with pytest.raises(FormatError) as caught_in_text:
            ResourceSet.parse(text)
        assert str(caught_in_text.value) == str(caught.value)
    return str(caught.value)


def refusal(value: object) -> str | None:
    """Why R is refused, None if it is not."""
    try:
        ResourceSet.parse(value)
    except FormatError as error:
        return str(error)
    return None


def test_the_example_of_the_rfc() -> None:
    """20.example.1, 20.goals.1, 20.goals.2: four targets, 192 cores, 32 gpus, and their hosts."""
    assert refusal(EXAMPLE) is None
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


@pytest.mark.parametrize(
    "execution",
    [
        {},
        {"nslots": 3},
        {"starttime": 5, "expiration": 7.5},
        {"starttime": 2.0**60},
        {"properties": {"big": "0"}},
        {"further": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("top", [{}, {"scheduling": {"writer": "x"}}, {"further": 1}], ids=str)
def test_text_is_read_as_the_object_is(execution: dict[str, Any], top: dict[str, Any]) -> None:
    """Short texts with the usual keys are read in another way than the others."""
    r = r_object(entry("0", "3-5"), nodelist=["a"])
    r |= top
    r["execution"] |= execution
    for spaced in (None, 2):
        text = json.dumps(r, indent=spaced).encode()
        assert ResourceSet.parse(text) == ResourceSet.parse(r)
        assert ResourceSet.parse(text).to_json() == ResourceSet.parse(r).to_json()


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
    ],
)
def test_children_are_idsets_of_cores_and_gpus(children: object, text: str) -> None:
    """20.format.7, 20.format.8, 20.format.9, 20.overview.1: ids, never counts; core is required."""
    r = r_object({"rank": "0-3", "children": children})
    assert complaint(r) == f"execution.R_lite[0].{text}"


def test_keys_that_the_text_does_not_name_are_ignored_at_every_level() -> None:
    """readings: RFC 28's grow example."""
    plain = r_object(entry("0-3", "0-1"))
    other = r_object(entry("0-3", "0-1", memory="0") | {"x": 1}, x=1) | {"x": 1}
    assert ResourceSet.parse(other) == ResourceSet.parse(plain)


def test_gpus_are_optional_and_have_their_own_key() -> None:
    """20.format.9, 20.goals.4: nodes, cores and gpus are simple keys."""
    value = r_object(entry("0-1", "0-3", gpu="0-1"), entry("2-3", "0-3"))
    assert refusal(value) is None
    mixed = ResourceSet.parse(value)
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
            entry("0-1", "0"), entry("1-2", "2-3", gpu="0"), entry("1", "1"), nodelist=["n[0-2]"]
        )
    )
    assert r.summary() == "rank0/core0 rank1/core[0-3],gpu0 rank2/core[2-3],gpu0"
    assert (r.nnodes, r.ncores, r.ngpus) == (3, 7, 2)


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (("1-2", "1-3"), "R_lite[1]: expected each core of a rank once, got rank 1 core 1"),
        (("0-1", "0-1"), "R_lite[1]: expected each core of a rank once, got rank 0-1 core 0-1"),
        (
            ("1", "2", {"gpu": "0"}),
            "R_lite[1]: expected each gpu of a rank once, got rank 1 gpu 0 again",
        ),
    ],
)
def test_core_or_gpu_of_a_target_is_there_once(again: tuple[Any, ...], text: str) -> None:
    """20.format.10"""
    ranks, cores, *gpus = again
    second = entry(ranks, cores, **(gpus[0] if gpus else {}))
    r = r_object(entry("0-1", "0-1", gpu="0"), second, nodelist=["n[0-2]"])
    with pytest.raises(FormatError, match=re.escape(text)):
        ResourceSet.parse(r)


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
    value = r_object(entry("0-1", "0"), entry("2-3", "1"), nodelist=nodelist)
    assert refusal(value) is None
    r = ResourceSet.parse(value)
    assert r.hostnames == ("node0", "node1", "node2", "node3")


@pytest.mark.parametrize("nslots", ["4", 4.0, True, 0, -1, None])
def test_nslots_is_a_positive_integer(nslots: object) -> None:
    """20.nslots.1, 20.nslots.4: an integer greater than 0."""
    r = r_object()
    r["execution"]["nslots"] = nslots
    assert complaint(r).startswith("execution.nslots: expected an integer of at least 1, got ")
    r["execution"]["nslots"] = 2**31
    assert complaint(r).startswith("execution.nslots: expected an integer of at most 2147483647")


def test_r_that_is_no_allocation_has_no_nslots() -> None:
    """20.nslots.1, 20.nslots.2: it may be absent, and then is not printed."""
    inventory = ResourceSet.parse(r_object())
    assert inventory.nslots is None
    assert "nslots" not in str(inventory.to_json())
    assert "'nslots': 2" in str(inventory.with_nslots(2).to_json())
    with pytest.raises(FormatError, match="nslots: expected an integer of at least 1, got 0"):
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
    value = r_object(properties={"big": "0-1", "fast": "1-2"})
    assert refusal(value) is None
    r = ResourceSet.parse(value)
    assert r.properties == {"big": Idset.parse("0-1"), "fast": Idset.parse("1-2")}
    assert str(r.ranks_with_property("fast")) == "1-2"
    assert not r.ranks_with_property("slow")


@pytest.mark.parametrize("name", ["größe", "中", "a b", "+q", "a-b.c/d:e"])
def test_property_names_may_be_any_utf_8(name: str) -> None:
    """20.properties.4: not ASCII alone."""
    r = r_object(properties={name: "0"})
    assert refusal(r) is None
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
    value = r_object(properties={"amd-mi50@gpu": "0-1", "amd-mi50": "1-2"})
    assert refusal(value) is None
    r = ResourceSet.parse(value)
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
    assert refusal(r_object(**unset)) is None
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
    with pytest.raises(FormatError, match=expected):
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
    assert refusal(with_scheduling(scheduling)) is None
    r = ResourceSet.parse(with_scheduling(scheduling))
    for other in (r, r.restrict(Idset.parse("1")), r.rerank(), r.difference(r), r.with_times(1, 2)):
        assert other.scheduling == scheduling
    assert r.to_json()["scheduling"] == scheduling
    assert "scheduling" not in r.with_scheduling(None).to_json()


def test_the_place_of_an_error_begins_where_the_caller_says() -> None:
    with pytest.raises(FormatError, match=r"^payload\.resources\.version: expected the integer 1"):
        ResourceSet.parse({}, "payload.resources")
