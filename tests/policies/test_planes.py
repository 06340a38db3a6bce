"""Free cores and gpus as planes, against the index that goes by rank."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.formats import Group
from flux_trio.policies.free_index import FreeIndex
from flux_trio.policies.planes import FreePlanes, Planes
from flux_trio.policies.shape import Children

MACHINE = (Group(0b0000111, 0b1111, 0b11), Group(0b1111000, 0b110, 0))
TOTALS = {0b0000111: Children(0b1111, 0b11), 0b1111000: Children(0b110, 0)}

FREE = st.dictionaries(
    st.integers(0, 6), st.builds(Children, st.integers(0, 15), st.integers(0, 3)), max_size=7
)


def groups_of(free: dict[int, Children]) -> list[Group]:
    return [Group(1 << rank, *children) for rank, children in free.items()]


def both_ways(free: dict[int, Children]) -> tuple[FreePlanes, FreeIndex]:
    index = FreeIndex()
    for ranks, total in TOTALS.items():
        for rank, children in free.items():
            if 1 << rank & ranks:
                mine = Children(children.cores & total.cores, children.gpus & total.gpus)
                index.add(1 << rank, total, mine)
    layout = Planes(MACHINE, 0b1111111)
    return FreePlanes(layout, layout.flatten(groups_of(free))), index


@settings(max_examples=100)
@given(FREE)
def test_ranks_are_found_by_their_counts(free: dict[int, Children]) -> None:
    planes, index = both_ways(free)
    with_cores = {counts: ranks for counts, ranks in index.by_free.items() if counts[1]}
    assert planes.by_free == with_cores


@settings(max_examples=100)
@given(FREE)
def test_idle_ranks_have_everything_free(free: dict[int, Children]) -> None:
    planes, index = both_ways(free)
    assert planes.idle_ranks() == index.idle_ranks()


@settings(max_examples=100)
@given(FREE, st.integers(0, 0b1111111))
def test_ranks_are_split_by_what_they_have_free(free: dict[int, Children], some: int) -> None:
    planes, index = both_ways(free)
    known = some & sum([1 << rank for rank in free])
    by_children: dict[Children, int] = {}
    for ranks, children in index.parts(known):
        by_children[children] = by_children.get(children, 0) | ranks
    assert {children: ranks for ranks, children in planes.parts(known)} == by_children


@settings(max_examples=50)
@given(FREE, FREE)
def test_what_is_free_at_both_times_is_the_intersection(
    now: dict[int, Children], later: dict[int, Children]
) -> None:
    layout = Planes(MACHINE, 0b1111111)
    throughout = {
        rank: Children(now[rank].cores & later[rank].cores, now[rank].gpus & later[rank].gpus)
        for rank in now.keys() & later.keys()
    }
    both = layout.flatten(groups_of(now)) & layout.flatten(groups_of(later))
    assert both == layout.flatten(groups_of(throughout))


def test_counts_gpus_and_cores_of_the_ranks_laid_out() -> None:
    for ranks, counts in [(0b1111111, (6, 20)), (0b0011000, (0, 4)), (0, (0, 0))]:
        layout = Planes(MACHINE, ranks)
        assert layout.counts(layout.all) == counts


def test_what_is_not_laid_out_is_left_out() -> None:
    """27.hello.12: R may name ranks, cores and gpus that are not ours."""
    layout = Planes(MACHINE, 0b0001001)
    strange = layout.flatten([Group(0b1001001, 0b11111111, 0b1111)])
    assert strange == layout.all
