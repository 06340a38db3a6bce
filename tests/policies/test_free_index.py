"""The index of free cores and gpus against a table of all ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flux_trio.policies.free_index import FreeIndex
from flux_trio.policies.shape import NOTHING, Children

TOTAL = Children(0b11, 0b1)
NRANKS = 12
some_ranks = st.integers(1, (1 << NRANKS) - 1)
moves = st.lists(
    st.tuples(some_ranks, st.builds(Children, st.integers(0, 0b11), st.integers(0, 0b1))),
    max_size=20,
)


def split(table: list[Children], ranks: int) -> list[tuple[int, Children]]:
    """Return (ranks, free there): idle ranks, full ranks, then the others by their lowest rank."""
    parts: dict[Children, int] = {TOTAL: 0, NOTHING: 0}
    for rank, free in enumerate(table):
        if ranks >> rank & 1:
            parts[free] = parts.get(free, 0) | 1 << rank
    return [(part, free) for free, part in parts.items() if part]


@given(moves, some_ranks)
def test_ranks_are_split_by_what_is_free_there(
    changes: list[tuple[int, Children]], asked: int
) -> None:
    """Whether few ranks are asked for, or more than there are kinds of what is free."""
    index, table = FreeIndex(), [TOTAL] * NRANKS
    index.add((1 << NRANKS) - 1, TOTAL, TOTAL)
    for ranks, wanted in changes:
        for part, free in split(table, ranks):
            index.move(part, free, wanted)
        table = [wanted if ranks >> rank & 1 else free for rank, free in enumerate(table)]
    assert index.parts(asked) == split(table, asked)
    assert index.copy().parts(asked) == split(table, asked)
    for rank in range(NRANKS):
        assert index.parts(1 << rank) == [(1 << rank, table[rank])]
