"""Set algebra on the cores and gpus of ranks; ranks with equal children form one group.

This module does not know the JSON of RFC 20. A canonical tuple of groups has disjoint ranks, no two
groups with the same children, no empty group, and the order of the lowest ranks, so equal sets are
equal tuples. The cost of an operation grows with the number of groups (the product of both sides),
not with ranks times cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Group(NamedTuple):
    """Ranks that each hold these cores and these gpus; all three are bit sets."""

    ranks: int
    cores: int
    gpus: int


Groups = tuple[Group, ...]

_ByChildren = dict[tuple[int, int], int]  # (cores, gpus) -> ranks


def canonical(groups: Iterable[Group]) -> Groups:
    """Return the canonical form; a rank in several groups gets all their children.

    See 20.format.10.
    """
    groups = tuple(groups)
    if len(groups) == 1 and groups[0].ranks and (groups[0].cores or groups[0].gpus):
        return groups  # the usual case
    ranks_of: _ByChildren = {}
    seen = 0
    for ranks, cores, gpus in groups:
        again = ranks & seen
        if again:
            _add_children(ranks_of, again, cores, gpus)
            ranks ^= again
        if ranks and (cores or gpus):
            ranks_of[cores, gpus] = ranks_of.get((cores, gpus), 0) | ranks
            seen |= ranks
    found = [Group(ranks, *children) for children, ranks in ranks_of.items()]
    found.sort(key=_lowest_rank)
    return tuple(found)


def _add_children(ranks_of: _ByChildren, again: int, cores: int, gpus: int) -> None:
    for children, ranks in list(ranks_of.items()):
        both = ranks & again
        if not both:
            continue
        ranks_of[children] ^= both
        if not ranks_of[children]:
            del ranks_of[children]
        more = (children[0] | cores, children[1] | gpus)
        ranks_of[more] = ranks_of.get(more, 0) | both


def _lowest_rank(group: Group) -> int:
    return (group.ranks & -group.ranks).bit_length()


def all_ranks(groups: Groups) -> int:
    """Return the ranks of all groups, as a bit set."""
    ranks = 0
    for group in groups:
        ranks |= group.ranks
    return ranks


def union(a: Groups, b: Groups) -> Groups:
    return canonical(a + b)


def intersection(a: Groups, b: Groups) -> Groups:
    return canonical(
        Group(x.ranks & y.ranks, x.cores & y.cores, x.gpus & y.gpus)
        for x in a
        for y in b
        if x.ranks & y.ranks
    )


def difference(a: Groups, b: Groups) -> Groups:
    if a == b:
        return ()  # often: what a job held is free
    return canonical(_without(a, b))


def _without(a: Groups, b: Groups) -> Iterator[Group]:
    for ranks, cores, gpus in a:
        for other in b:
            both = ranks & other.ranks
            if both:
                yield Group(both, cores & ~other.cores, gpus & ~other.gpus)
                ranks ^= both
        if ranks:
            yield Group(ranks, cores, gpus)


def is_subset(a: Groups, b: Groups) -> bool:
    return not any(cores or gpus for _, cores, gpus in _without(a, b))


def restrict(groups: Groups, ranks: int) -> Groups:
    return canonical(group._replace(ranks=group.ranks & ranks) for group in groups)


def is_disjoint(a: Groups, b: Groups) -> bool:
    return not any(
        x.ranks & y.ranks and (x.cores & y.cores or x.gpus & y.gpus) for x in a for y in b
    )
