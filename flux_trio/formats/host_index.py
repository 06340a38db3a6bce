"""The hosts of an inventory, found by ranges of a hostlist without expanding them.

A short range can stand for very many hosts. A lookup here takes time by the inventory's own order:
hosts whose numbers and ranks ascend together, as `n[0-16383]` on ranks 0 to 16383 do, are one run,
and a range takes its part of a run at once.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from flux_trio.formats.hostlist import HostRange

_DIGITS: Final = "0123456789"
_NUMBER: Final = re.compile("[0-9]+")

_Series: TypeAlias = tuple[str, str, int]
"""What names with one number in common places share: the text before, after, and its digits."""


class _Run(NamedTuple):
    """Hosts with the numbers from `first` to `last`, on ranks that ascend from `rank`."""

    last: int  # first, so that runs are sought by it
    first: int
    rank: int


class HostIndex:
    """Finds the ranks of hosts; several ranks may share a host."""

    def __init__(self, hosts: Mapping[int, str]) -> None:
        """Index the hosts, by rank."""
        self._named: dict[str, tuple[int, ...]] = {}  # the ranks of each host
        numbered: dict[_Series, list[tuple[int, int]]] = {}
        for rank, host in hosts.items():
            self._named[host] = (*self._named.get(host, ()), rank)
            for found in _NUMBER.finditer(host):
                series = host[: found.start()], host[found.end() :], len(found[0])
                numbered.setdefault(series, []).append((int(found[0]), rank))
        self._runs = {series: _runs(pairs) for series, pairs in numbered.items()}

    def ranks(self, parts: Iterable[str | HostRange]) -> int:
        """Return the ranks of the hosts as a bit set; unknown hosts are ignored."""
        ranks = 0
        for part in parts:
            if isinstance(part, str):
                for rank in self._named.get(part, ()):
                    ranks |= 1 << rank
            else:
                ranks |= self._in_range(part)
        return ranks

    def _in_range(self, hosts: HostRange) -> int:
        """Return the ranks of a range, whose ids may be a part of the digits in a name."""
        head, tail = hosts.prefix.rstrip(_DIGITS), hosts.suffix.lstrip(_DIGITS)
        before, after = hosts.prefix[len(head) :], hosts.suffix[: len(hosts.suffix) - len(tail)]
        step, last_digits = 10 ** len(after), int(after or 0)
        ranks = 0
        for ndigits, first, last in _by_digits(hosts):
            first_digits = int(before or 0) * 10**ndigits
            series = head, tail, len(before) + ndigits + len(after)
            if runs := self._runs.get(series):
                low, high = ((first_digits + id_) * step + last_digits for id_ in (first, last))
                ranks |= _between(runs, low, high, step)
        return ranks


def _by_digits(hosts: HostRange) -> Iterator[tuple[int, int, int]]:
    """Split the ids by their number of digits: yield it, and the first and last of these ids."""
    shortest = max(hosts.width, len(str(hosts.first)))
    for ndigits in range(shortest, max(hosts.width, len(str(hosts.last))) + 1):
        first = hosts.first if ndigits == shortest else 10 ** (ndigits - 1)
        yield ndigits, first, min(hosts.last, 10**ndigits - 1)


def _runs(pairs: list[tuple[int, int]]) -> list[_Run]:
    """Return runs of (number, rank), in order of their numbers."""
    runs: list[_Run] = []
    for number, rank in sorted(pairs):
        if runs:
            last, first, from_ = runs[-1]
            if number == last + 1 and rank == from_ + number - first:
                runs[-1] = _Run(number, first, from_)
                continue
        runs.append(_Run(number, number, rank))
    return runs


def _between(runs: list[_Run], low: int, high: int, step: int) -> int:
    """Return the ranks with the numbers `low`, `low + step`, … up to `high`."""
    ranks = 0
    for at in range(bisect_left(runs, low, key=_last_of), len(runs)):
        last, first, rank = runs[at]
        if first > high:
            break
        begin = low if first <= low else first + (low - first) % step
        length = min(high, last) - begin + 1
        if length > 0:
            ranks |= (
                _every(step, length.bit_length()) & ((1 << length) - 1)
            ) << rank + begin - first
    return ranks


def _last_of(run: _Run) -> int:
    return run.last


@lru_cache(maxsize=64)
def _every(step: int, nbits: int) -> int:
    """Return the bit set 0, step, 2 * step, … below 2**nbits."""
    if step == 1:
        return (1 << (1 << nbits)) - 1
    bits, length = 1, step
    while length < 1 << nbits:
        bits |= bits << length
        length *= 2
    return bits & ((1 << (1 << nbits)) - 1)
