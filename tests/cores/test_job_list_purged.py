"""A job that is purged while the index of finished jobs is read is not brought back by a page."""

from __future__ import annotations

import pytest

from flux_trio.cores.job_list.finished import NEWEST, Finished
from flux_trio.editions.journal import Ended

OLD, NEW = Ended(1, 1_000_000, 0, 1, 0, 0), Ended(2, 2_000_000, 0, 1, 0, 0)


@pytest.mark.parametrize("purged", [(OLD,), (OLD, NEW)])
def test_page_that_was_read_before_the_purge_does_not_bring_the_job_back(
    purged: tuple[Ended, ...],
) -> None:
    finished = Finished()
    finished.begin()
    for job in purged:
        finished.purge((job.usec, job.id))
    finished.fill([NEW, OLD], is_last=True)
    assert [job.id for job in finished.before(NEWEST, 9)[0]] == [2][: 2 - len(purged)]
    assert len(finished) == finished.counts.total() == 2 - len(purged)


def test_job_that_is_purged_after_its_page_is_gone() -> None:
    finished = Finished()
    finished.begin()
    finished.fill([NEW], is_last=False)
    finished.purge((NEW.usec, NEW.id))
    finished.fill([OLD], is_last=True)
    assert [job.id for job in finished.before(NEWEST, 9)[0]] == [OLD.id]
