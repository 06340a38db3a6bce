"""Every page and slice as small as two: what works in pages works on its second one, too.

`pytest -p tests.support.small_pages` runs any test so, in its own process. A page here is what one
step takes of a whole, whose rest another step takes: keys of a read, jobs of a commit, rows of a
response. Bounds, beyond which something is refused or forgotten, stay as they are.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

SMALL: Final = 2

PAGES: Final[dict[str, tuple[str, ...]]] = {
    "flux_trio.broker.router": ("BATCH_MAX",),
    "flux_trio.cli.follow.watching": ("AT_ONCE",),
    "flux_trio.cli.jobs.explanation": ("_ASKED_AT_ONCE",),
    "flux_trio.cli.jobs.job_purge": ("BATCH",),
    "flux_trio.cli.judge.monitoring": ("BATCH",),
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
    "flux_trio.trace.batches": ("BATCH",),
    "flux_trio.trace.writing": ("BATCH",),
    "flux_trio.transports.share": ("SLICE_MESSAGES_MAX",),
}
"""The names of the sizes, by the module that defines them."""


def make_small(module: str, name: str) -> None:
    """Set a size, also where another module has imported it."""
    before = getattr(importlib.import_module(module), name)
    for other, loaded in list(sys.modules.items()):
        if other.startswith("flux_trio.") and vars(loaded).get(name) == before:
            setattr(loaded, name, SMALL)


def pytest_configure() -> None:
    """Called by pytest when it loads this file as a plugin."""
    for module, names in PAGES.items():
        for name in names:
            make_small(module, name)
