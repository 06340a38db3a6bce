import json
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import (
    FormatError,
    HostRange,
    Idset,
    ResourceSet,
    Targets,
    both,
    check_property_name,
    parse_constraint,
)


class Nodes:
    """Targets with ranks 0, 1, …, each a host name and its properties."""

    def __init__(self, nodes: Mapping[str, Sequence[str]]) -> None:
        self.nodes = list(nodes.items())
        self.ranks = Idset.of(range(len(self.nodes)))

    def ranks_with_property(self, name: str) -> Idset:
        return Idset.of(rank for rank, (_, has) in enumerate(self.nodes) if name in has)

    def ranks_of_hosts(self, hosts: Iterable[str | HostRange]) -> Idset:
        named = {
            name for part in hosts for name in ([part] if isinstance(part, str) else part.names())
        }
        return Idset.of(rank for rank, (host, _) in enumerate(self.nodes) if host in named)


NODES: Targets = Nodes(
    {
        "host0": ["ssd"],
        "host1": ["ssd", "slowgpu"],
        "host2": ["huge"],
        "host3": ["slowgpu", "ssd", "huge"],
        "login0": [],
    }
)


def select(constraint: object) -> str:
    return str(parse_constraint(constraint).select(NODES))


@pytest.mark.parametrize(
    ("constraint", "ranks"),
    [
        ({"properties": ["ssd"]}, "0-1,3"),
        ({"properties": ["^slowgpu"]}, "0,2,4"),
        ({"not": [{"properties": ["slowgpu"]}]}, "0,2,4"),
        ({"or": [{"properties": ["ssd"]}, {"properties": ["huge"]}]}, "0-3"),
        ({"hostlist": ["host[0-1]"]}, "0-1"),
        ({"not": [{"hostlist": ["host[0-1]"]}]}, "2-4"),
        ({"and": [{"hostlist": ["host[1-2]"]}, {"properties": ["ssd"]}]}, "1"),
        ({"ranks": ["0"]}, "0"),
    ],
)
def test_examples_of_the_rfc(constraint: object, ranks: str) -> None:
    """31.constraints.13: evaluated as the RFC describes them."""
    assert select(constraint) == ranks


def test_properties_must_all_be_there() -> None:
    """31.constraints.2: all of them, not any."""
    assert select({"properties": ["ssd", "huge"]}) == "3"
    assert select({"properties": ["ssd", "unheard-of"]}) == ""


def test_a_caret_excludes_a_property() -> None:
    """31.constraints.3: only targets without it."""
    assert select({"properties": ["ssd", "^slowgpu"]}) == "0"
    assert select({"properties": ["^unheard-of"]}) == "0-4"


def test_hostlists_are_expanded_and_united() -> None:
    """31.constraints.4: RFC 29 hostlists; hosts that are no targets do not matter."""
    assert select({"hostlist": ["host[2-9]", "login0", "host2"]}) == "2-4"


def test_ranks_are_idsets() -> None:
    """31.constraints.5: RFC 22 idsets, united; ranks that are no targets do not matter."""
    assert select({"ranks": ["0-1", "[3]", "1,7"]}) == "0-1,3"


def test_not_negates_the_whole_value() -> None:
    """31.constraints.6: a target with only one of two properties still matches."""
    assert select({"not": [{"properties": ["ssd", "slowgpu"]}]}) == "0,2,4"


def test_or_takes_any_value() -> None:
    """31.constraints.7: any one of them."""
    assert select({"or": [{"ranks": ["0"]}, {"ranks": ["4"]}, {"not": []}]}) == "0,4"


def test_and_takes_all_values() -> None:
    """31.constraints.8: also the second and third."""
    assert select({"and": [{"ranks": ["0-3"]}, {"ranks": ["1-4"]}, {"ranks": ["1,3"]}]}) == "1,3"


@pytest.mark.parametrize("constraint", [{"or": []}, {"and": []}])
def test_or_and_and_of_nothing_match_everything(constraint: object) -> None:
    """31.constraints.9: always match."""
    assert select(constraint) == "0-4"


def test_not_of_nothing_matches_nothing() -> None:
    """31.constraints.10: never match."""
    assert select({"not": []}) == ""
    assert select({"not": [{"not": []}]}) == "0-4"


def test_the_empty_object_matches_everything() -> None:
    """31.constraints.11: always match, nested as well."""
    assert select({}) == "0-4"
    assert select({"not": [{}]}) == ""


def test_operators_without_values() -> None:
    """31.constraints.12: fixed: no properties match all, no hosts and no ranks match none."""
    assert select({"properties": []}) == "0-4"
    assert select({"hostlist": []}) == select({"hostlist": [""]}) == ""
    assert select({"ranks": []}) == select({"ranks": [""]}) == ""


@pytest.mark.parametrize(
    ("constraint", "where"),
    [
        ([], ""),
        ("ssd", ""),
        (None, ""),
        ([{"properties": ["ssd"]}], ""),
        ({"properties": ["a"], "ranks": ["0"]}, ""),
        ({"xor": []}, ""),
        ({1: []}, ""),
        ({"properties": "ssd"}, ".properties"),
        ({"and": {"ranks": ["0"]}}, ".and"),
        ({"properties": [5]}, ".properties[0]"),
        ({"properties": ["a", "b|c"]}, ".properties[1]"),
        ({"properties": ["^"]}, ".properties[0]"),
        ({"properties": ["^^a"]}, ".properties[0]"),
        ({"hostlist": ["a[1"]}, ".hostlist[0]"),
        ({"hostlist": ["a", 5]}, ".hostlist[1]"),
        ({"hostlist": ["a[0-1]", f"{'a' * 256}[1-2]"]}, ".hostlist[1]"),
        ({"ranks": ["0", "3-1"]}, ".ranks[1]"),
        ({"ranks": [0]}, ".ranks[0]"),
        ({"not": [{}, {}]}, ".not"),
        ({"not": [{"nor": []}]}, ".not[0]"),
        ({"or": [{}, {"and": [{"ranks": ["x"]}]}]}, ".or[1].and[0].ranks[0]"),
        ({"or": ["ssd"]}, ".or[0]"),
    ],
)
def test_errors_name_the_place(constraint: object, where: str) -> None:
    """31.constraints.1, 31.constraints.12: {operator: [values]} with a known operator, nested."""
    with pytest.raises(FormatError) as caught:
        parse_constraint(constraint, "attributes.system.constraints")
    assert caught.value.where == f"attributes.system.constraints{where}"


def test_deep_nesting_is_refused() -> None:
    constraint: dict[str, object] = {}
    for _ in range(63):
        constraint = {"not": [constraint]}
    parse_constraint(constraint)
    for _ in range(100_000):
        constraint = {"not": [constraint]}
    with pytest.raises(FormatError, match="at most 64 operators"):
        parse_constraint(constraint)


names = st.sampled_from(["ssd", "slowgpu", "huge", "^huge", "amd-mi50@gpu", "größe"])
leaves = st.one_of(
    st.just({}),
    st.builds(lambda values: {"properties": values}, st.lists(names, max_size=3)),
    st.builds(lambda values: {"hostlist": values}, st.sampled_from([[], ["host[0-2]"], ["a,b"]])),
    st.builds(lambda values: {"ranks": values}, st.sampled_from([[], ["0-3"], ["1,4-9"]])),
)
constraints = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda values: {"and": values}, st.lists(inner, max_size=3)),
        st.builds(lambda values: {"or": values}, st.lists(inner, max_size=3)),
        st.builds(lambda values: {"not": values}, st.lists(inner, max_size=1)),
    ),
    max_leaves=6,
)


@given(constraints)
def test_constraints_read_and_write_the_same(obj: object) -> None:
    """31.constraints.1: and are plain JSON."""
    constraint = parse_constraint(obj)
    written = json.loads(json.dumps(constraint.to_json()))
    assert written == obj
    assert parse_constraint(written) == constraint
    assert hash(parse_constraint(written)) == hash(constraint)
    assert constraint.select(NODES) <= NODES.ranks


@given(constraints, constraints)
def test_both_matches_where_both_match(left: object, right: object) -> None:
    a, b = parse_constraint(left), parse_constraint(right)
    together = both(a, b)
    assert together.select(NODES) == a.select(NODES) & b.select(NODES)
    assert parse_constraint(together.to_json()) == together


def test_both_adds_no_layers() -> None:
    queue, job = parse_constraint({"properties": ["batch"]}), parse_constraint({"ranks": ["0"]})
    assert both(queue, parse_constraint({})) == queue
    assert both(parse_constraint({"and": []}), parse_constraint({"or": []})).to_json() == {}
    assert both(queue, job).to_json() == {"and": [{"properties": ["batch"]}, {"ranks": ["0"]}]}
    assert both(both(queue, job), queue).to_json() == {
        "and": [{"properties": ["batch"]}, {"ranks": ["0"]}, {"properties": ["batch"]}]
    }


def test_the_at_sign_is_part_of_the_literal_name() -> None:
    """20.properties: a suffix after @ is the scheduler's matter; the literal property applies."""
    targets = Nodes({"n0": ["amd-mi50@gpu"], "n1": ["amd-mi50"]})
    for name, rank in (("amd-mi50@gpu", "0"), ("amd-mi50", "1")):
        assert str(parse_constraint({"properties": [name]}).select(targets)) == rank


@pytest.mark.parametrize("name", ["ssd", "amd-mi50@gpu", "größe", "+batch", "a b", "[x]"])
def test_names_of_properties(name: str) -> None:
    """20.properties.4: valid UTF-8."""
    check_property_name(name)


@pytest.mark.parametrize("character", [*"!&'\"^`|()", pytest.param("\ud800", id="surrogate")])
def test_characters_that_names_of_properties_may_not_hold(character: str) -> None:
    """20.properties.5: ! & ' " ^ ` | ( ) and what is not UTF-8."""
    with pytest.raises(FormatError, match="a property name"):
        check_property_name(f"a{character}b")


WIDE = [
    {"not": [{"hostlist": ["x[0-200000]"]}]},
    {"or": [{"hostlist": [f"n[0-{10**17}]", f"x{n}[0-200000]"]} for n in range(300)]},
    {"and": [{"ranks": ["0-4194303"]}] * 2000},
    {"ranks": ["4194303"] * 2000},
]


@pytest.mark.parametrize("obj", WIDE, ids=["hosts", "host lists", "ranks", "many ranks"])
def test_a_wide_constraint_takes_no_more_memory_than_its_text(obj: dict[str, object]) -> None:
    """Neither when it is kept nor when it selects, however many hosts and ranks it names."""
    text = json.dumps(obj)
    machine = ResourceSet.build([(rank, 1, 0) for rank in range(64)], "n{}".format).targets
    tracemalloc.start()
    try:
        constraint = parse_constraint(json.loads(text))
        constraint.select(machine)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000 + 16 * len(text)


def test_ranges_beyond_the_targets_select_what_is_there() -> None:
    machine = ResourceSet.build([(rank, 1, 0) for rank in range(8)], "n{}".format).targets

    def chosen(obj: object) -> str:
        return str(parse_constraint(obj).select(machine))

    assert chosen({"hostlist": [f"n[6-{10**17}]"]}) == "6-7"
    assert chosen({"ranks": ["5-4194303"]}) == "5-7"
    assert chosen({"ranks": ["4194303"]}) == ""
    assert chosen({"not": [{"ranks": ["1,3-4194303"]}]}) == "0,2"
