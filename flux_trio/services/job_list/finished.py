"""The finished jobs that lists choose from: 29 bytes each, in order of the time they ended.

Of a finished job nothing is kept in memory but what lists are filtered by (`job_index.Ended`); its
row is made from its eventlog, jobspec and R when it is listed. The jobs are in blocks, each with an
array for every column, so that a new job, which is nearly always the newest, costs the same however
many there are. The place of a job is (usec, id): a list that goes on later finds where it was
whatever came or went meanwhile.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final, TypeAlias

from flux_trio.services.job_index import Ended

BLOCK_MAX: Final = 2048  # jobs in a block; a full one becomes two

Place: TypeAlias = tuple[int, int]
"""(usec, id): when a job ended, and its id."""

NEWEST: Final[Place] = (1 << 64, 0)
"""Beyond every job."""

_COLUMNS: Final = ("Q", "Q", "I", "B", "I", "I")  # as the fields of _Block, in this order


class _Block:
    """Some jobs next to one another, the oldest first."""

    __slots__ = ("columns", "ids", "names", "queues", "results", "usecs", "userids")

    def __init__(self, columns: tuple[array[int], ...] | None = None) -> None:
        self.columns = columns or tuple(array(code) for code in _COLUMNS)
        self.usecs, self.ids, self.userids, self.results, self.names, self.queues = self.columns

    def __len__(self) -> int:
        return len(self.ids)

    def place(self, at: int) -> Place:
        return self.usecs[at], self.ids[at]

    def find(self, place: Place) -> int:
        """Of the first job at `place` or after it."""
        at = bisect_left(self.usecs, place[0])
        while at < len(self.ids) and self.place(at) < place:
            at += 1
        return at

    def job(self, at: int) -> Ended:
        return Ended(
            self.ids[at],
            self.usecs[at],
            self.userids[at],
            self.results[at],
            self.names[at],
            self.queues[at],
        )

    def insert(self, at: int, job: Ended) -> None:
        values = (job.usec, job.id, job.userid, job.result, job.name, job.queue)
        for column, value in zip(self.columns, values, strict=True):
            column.insert(at, value)

    def delete(self, at: int) -> None:
        for column in self.columns:
            del column[at]

    def split(self) -> _Block:
        """The newer half; it is no longer here."""
        middle = len(self) // 2
        newer = _Block(tuple(column[middle:] for column in self.columns))
        for column in self.columns:
            del column[middle:]
        return newer


class Finished:
    """All finished jobs that are known. `counts` says how many there are of each result."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []  # none is empty
        self._firsts: list[Place] = []  # of each block
        self.counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, job: Ended) -> None:
        """Take in a job; nothing changes for one that is there."""
        place = (job.usec, job.id)
        if not self._blocks:
            self._blocks.append(_Block())
            self._firsts.append(place)
        number = self._block_of(place)
        block = self._blocks[number]
        at = block.find(place)
        if at < len(block) and block.place(at) == place:
            return
        block.insert(at, job)
        self.counts[job.result] += 1
        if len(block) > BLOCK_MAX:
            newer = block.split()
            self._blocks.insert(number + 1, newer)
            self._firsts.insert(number + 1, newer.place(0))
        self._firsts[number] = block.place(0)

    def remove(self, place: Place) -> None:
        """Forget the job at `place`, if it is there."""
        if not self._blocks:
            return
        number = self._block_of(place)
        block = self._blocks[number]
        at = block.find(place)
        if at == len(block) or block.place(at) != place:
            return
        self.counts[block.results[at]] -= 1
        block.delete(at)
        if len(block):
            self._firsts[number] = block.place(0)
        else:
            del self._blocks[number], self._firsts[number]

    def before(self, place: Place) -> Iterator[Ended]:
        """The jobs before `place`, the newest first. Nothing may change meanwhile."""
        if not self._blocks:
            return
        number = self._block_of(place)
        at = self._blocks[number].find(place)
        while number >= 0:
            block = self._blocks[number]
            for each in reversed(range(at)):
                yield block.job(each)
            number -= 1
            at = len(self._blocks[number])

    def _block_of(self, place: Place) -> int:
        """Number of the block where `place` is, or would be."""
        at = bisect_left(self._firsts, place)
        is_first = at < len(self._firsts) and self._firsts[at] == place
        return at if is_first else max(0, at - 1)
