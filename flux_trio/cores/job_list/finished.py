"""The finished jobs that lists choose from: 29 bytes each, in order of the time they ended.

Memory has only the values that lists filter by (`journal.Ended`). The row of a finished job is made
from its eventlog, jobspec and R when it is listed. The jobs are in blocks with one array for each
column, so the cost of adding a job does not grow with their number; nearly always it is the newest.
The place of a job is (usec, id): with it a list finds where it was, whatever was added or purged
meanwhile.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from flux_trio.cores.job_index import mark_of
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.editions.job_list import JobStats
from flux_trio.editions.journal import Ended
from flux_trio.formats.meanings import JobId, JobIds, Numbers, Usec, Usecs
from flux_trio.protocols import JobResult, JobState

BLOCK_MAX: Final = 2048  # jobs in a block; a full one becomes two

Place: TypeAlias = tuple[Usec, JobId]
"""(usec, id): when a job ended, and its id."""

NEWEST: Final[Place] = (1 << 64, 0)
"""A place after every job."""

_COLUMNS: Final = ("Q", "Q", "I", "B", "I", "I")  # type codes, in the order of the fields of _Block


Columns: TypeAlias = tuple[Usecs, JobIds, Numbers, Numbers, Numbers, Numbers]


class _Block:
    """Some jobs next to one another, the oldest first."""

    __slots__ = ("columns", "ids", "names", "queues", "results", "usecs", "userids")

    def __init__(self, columns: tuple[array[int], ...] | None = None) -> None:
        self.columns: tuple[array[int], ...] = columns or tuple(array(code) for code in _COLUMNS)
        self.usecs, self.ids, self.userids, self.results, self.names, self.queues = self.columns

    def __getstate__(self) -> Columns:
        return self.usecs, self.ids, self.userids, self.results, self.names, self.queues

    def __setstate__(self, columns: Columns) -> None:
        self.columns = columns
        self.usecs, self.ids, self.userids, self.results, self.names, self.queues = columns

    def __len__(self) -> int:
        return len(self.ids)

    def place(self, at: int) -> Place:
        return self.usecs[at], self.ids[at]

    def find(self, place: Place) -> int:
        """Return the index of the first job at `place` or after it."""
        if self.ids and self.place(-1) < place:
            return len(self.ids)  # nearly always
        usec, jobid = place
        first = bisect_left(self.usecs, usec)
        return bisect_left(self.ids, jobid, first, bisect_right(self.usecs, usec, first))

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
        self.usecs.insert(at, job.usec)
        self.ids.insert(at, job.id)
        self.userids.insert(at, job.userid)
        self.results.insert(at, job.result)
        self.names.insert(at, job.name)
        self.queues.insert(at, job.queue)

    def delete(self, at: int) -> None:
        for column in self.columns:
            del column[at]

    def split(self) -> _Block:
        """Remove the newer half of the jobs and return it."""
        middle = len(self) // 2
        newer = _Block(tuple(column[middle:] for column in self.columns))
        for column in self.columns:
            del column[middle:]
        return newer


class Finished(Part):
    """The finished jobs that are known by now; `counts` has the number of jobs by result.

    `by_queue` has it by the mark of their queue and their result, `purged` by the mark alone.
    """

    _blocks: list[_Block]
    _firsts: list[Place]
    counts: Counter[int]
    by_queue: Counter[tuple[int, int]]
    npurged: int
    purged: Counter[int]
    _known_from: Place | None
    _purged: set[Place]

    def __init__(self) -> None:
        self._blocks = []  # each has at least one job
        self._firsts = []  # of each block
        self.counts = Counter()
        self.by_queue = Counter()
        self.npurged = 0  # since the start
        self.purged = Counter()
        self._known_from = None  # every job from this place on is known; None if every job is
        self._purged = set()  # since the next page was asked for: it may still have them

    @property
    def is_complete(self) -> bool:
        """Return whether every finished job is known."""
        return self._known_from is None

    def begin(self) -> None:
        """Forget all jobs, before the index is read again."""
        self._blocks.clear()
        self._firsts.clear()
        self.counts.clear()
        self.by_queue.clear()
        self._known_from = NEWEST
        self._purged.clear()

    def fill(self, jobs: Sequence[Ended], *, is_last: bool) -> None:
        """Add the next page of the index; its newest job comes first."""
        for job in jobs:
            if (job.usec, job.id) not in self._purged:
                self.add(job)
        self._purged.clear()
        if is_last:
            self._known_from = None
        elif jobs:
            self._known_from = jobs[-1].usec, jobs[-1].id

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, job: Ended) -> None:
        """Add a job, unless it is there already."""
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
        self.by_queue[job.queue, job.result] += 1
        if not at:
            self._firsts[number] = place
        if len(block) > page_size(BLOCK_MAX):
            newer = block.split()
            self._blocks.insert(number + 1, newer)
            self._firsts.insert(number + 1, newer.place(0))

    def purge(self, place: Place) -> None:
        """Remove the job at `place`, which was purged."""
        self.npurged += 1
        if self._known_from is not None and place < self._known_from:
            self._purged.add(place)
        if not self._blocks:
            return
        number = self._block_of(place)
        block = self._blocks[number]
        at = block.find(place)
        if at == len(block) or block.place(at) != place:
            return
        self.counts[block.results[at]] -= 1
        self.by_queue[block.queues[at], block.results[at]] -= 1
        self.purged[block.queues[at]] += 1
        block.delete(at)
        if len(block):
            self._firsts[number] = block.place(0)
        else:
            del self._blocks[number], self._firsts[number]

    def before(self, place: Place, limit: int) -> tuple[list[Ended], bool]:
        """Return at most `limit` jobs before `place`, the newest first, and whether these are all.

        If there are fewer than `limit` and they are not all, the others are not known yet.
        """
        found: list[Ended] = []
        number = self._block_of(place) if self._blocks else -1
        at = self._blocks[number].find(place) if self._blocks else 0
        while number >= 0:
            block = self._blocks[number]
            for each in reversed(range(at)):
                if self._known_from is not None and block.place(each) < self._known_from:
                    return found, False
                found.append(block.job(each))
                if len(found) == limit:
                    return found, False
            number -= 1
            at = len(self._blocks[number])
        return found, self.is_complete

    def _block_of(self, place: Place) -> int:
        """Return the number of the block where `place` is, or would be."""
        if self._firsts[-1] <= place:
            return len(self._firsts) - 1  # nearly always
        at = bisect_left(self._firsts, place)
        is_first = at < len(self._firsts) and self._firsts[at] == place
        return at if is_first else max(0, at - 1)


_STATES: Final = tuple(state for state in JobState if state is not JobState.NEW)


def job_stats(
    counts: Counter[int], finished: Finished, queues: Mapping[str, Mapping[str, int]]
) -> JobStats:
    """Return the response; `counts` are numbers of active jobs by state.

    `queues` has the names of all queues, and of the active jobs of each the numbers by the name of
    their state. A queue that no job has named yet is left out.
    """
    states = {state.name.lower(): counts[state] for state in _STATES}
    results = {result: finished.counts[result] for result in JobResult}
    by_queue = [_of_queue(name, active, finished) for name, active in sorted(queues.items())]
    known = [each for each in by_queue if each.job_states["total"] or each.inactive_purged]
    return _stats_of(None, states, results, finished.npurged, known)


def _of_queue(name: str, active: Mapping[str, int], finished: Finished) -> JobStats:
    mark = mark_of(name)
    results = {result: finished.by_queue[mark, result] for result in JobResult}
    return _stats_of(name, active, results, finished.purged[mark])


def _stats_of(
    name: str | None,
    counts: Mapping[str, int],
    results: Mapping[JobResult, int],
    npurged: int,
    queues: list[JobStats] | None = None,
) -> JobStats:
    states = {state.name.lower(): counts.get(state.name.lower(), 0) for state in _STATES}
    states["inactive"] = sum(results.values())
    states["total"] = sum(states.values())
    return JobStats(
        job_states=states,
        successful=results[JobResult.COMPLETED],
        failed=results[JobResult.FAILED],
        canceled=results[JobResult.CANCELED],
        timeout=results[JobResult.TIMEOUT],
        inactive_purged=npurged,
        name=name,
        queues=queues,
    )
