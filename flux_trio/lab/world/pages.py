"""How small the pages of a world are: what works in pages works on its second one, too.

A page is what one step takes of a whole, whose rest another step takes: keys of a read, jobs of a
commit, rows of a response. In an instance they are so large that the jobs of a world fill none.
Bounds, beyond which something is refused or forgotten, stay as they are.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

PAGES: Final[dict[str, tuple[str, ...]]] = {
    "flux_trio.broker.router": ("BATCH_MAX",),
    "flux_trio.cores.exec.attach": ("READ_PARTS_MAX", "STORED_PIECES_MAX"),
    "flux_trio.cores.exec.attachments": ("PART_PIECES_MAX",),
    "flux_trio.cores.exec.keeping": ("READ_PARTS_MAX",),
    "flux_trio.cores.ingest.core": ("BATCH_JOBS_MAX",),
    "flux_trio.cores.job_list.choosing": ("SLICE_JOBS", "LOOKS_MAX"),
    "flux_trio.cores.job_list.details": ("LOOKUP_CHARS_MAX",),
    "flux_trio.cores.job_list.finished": ("BLOCK_MAX",),
    "flux_trio.cores.job_list.follow": ("SLICE_EVENTS",),
    "flux_trio.cores.job_list.rows": ("PAGE_BYTES_MAX",),
    "flux_trio.cores.job_list.scan": ("PAGE_JOBS",),
    "flux_trio.cores.job_manager.jobs.commits": ("COMMIT_OPS_MAX",),
    "flux_trio.cores.job_manager.jobs.lost_found": ("PAGE_ROWS", "PAGE_VALUES"),
    "flux_trio.cores.job_manager.jobs.purge": ("PAGE_JOBS",),
    "flux_trio.cores.job_manager.jobs.sweeps": ("SLICE_JOBS",),
    "flux_trio.cores.job_manager.requests.history": ("PAGE_JOBS",),
    "flux_trio.cores.kvs.room": ("ROUND_OPS_MAX",),
    "flux_trio.cores.kvs_calls": ("LOOKUP_JOBS_MAX",),
    "flux_trio.cores.sched.reranking": ("SLICE_JOBS",),
    "flux_trio.cores.stored_jobs": ("LAST_KEYS",),
    "flux_trio.jobtap.host": ("RECOUNT_JOBS_MAX",),
    "flux_trio.services.kvs": ("PAGES_MAX",),
    "flux_trio.store.backup.restoring": ("PAGE_JOBS",),
    "flux_trio.store.changes": ("SLICE_CHANGES", "STATEMENT_ROWS_MAX"),
    "flux_trio.store.database_copy": ("SLICE_PAGES",),
    "flux_trio.store.fsck": ("REPAIR_KEYS",),
    "flux_trio.store.reader": ("READ_KEYS_MAX", "SWEEP_KEYS_MAX"),
}
"""The names of the sizes in an instance, by the module that defines them."""

Place = tuple[dict[str, Any], str, int]
"""The namespace of a module, the name of a size in it, and the value that the size has in an
instance."""


def places_of(pages: Mapping[str, tuple[str, ...]]) -> list[Place]:
    """Return where each size is: in its module, and in those that have imported it."""
    places: list[Place] = []
    for module, names in pages.items():
        defining = importlib.import_module(module)
        for name in names:
            usual = getattr(defining, name)
            places += [
                (vars(loaded), name, usual)
                for other, loaded in list(sys.modules.items())
                if other.startswith("flux_trio.") and vars(loaded).get(name) == usual
            ]
    return places


@functools.cache
def _places_of_worlds() -> list[Place]:
    return places_of(PAGES)


@contextmanager
def pages_of(size: int) -> Iterator[None]:
    """Let every page have `size` entries in this block, in which one thing of a world happens.

    0 is as many as in an instance. Between the blocks of one world another may be played.
    """
    places = _places_of_worlds() if size else []
    for names, name, _ in places:
        names[name] = size
    try:
        yield
    finally:
        for names, name, usual in places:
            names[name] = usual
