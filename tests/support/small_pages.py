"""Every page and slice as small as two: what works in pages works on its second one, too.

`pytest -p tests.support.small_pages` runs any test so, in its own process. Worlds have pages of
their own, see `flux_trio.lab.world.pages`; these are those, and those of the command.
"""

from __future__ import annotations

from typing import Final

from flux_trio.lab.world import pages

SMALL: Final = 2

PAGES: Final[dict[str, tuple[str, ...]]] = pages.PAGES | {
    "flux_trio.cli.follow.watching": ("AT_ONCE",),
    "flux_trio.cli.jobs.explanation": ("_ASKED_AT_ONCE",),
    "flux_trio.cli.jobs.job_purge": ("BATCH",),
    "flux_trio.cli.judge.monitoring": ("BATCH",),
    "flux_trio.trace.writing": ("BATCH", "WAITING_MAX"),
    "flux_trio.transports.share": ("SLICE_MESSAGES_MAX",),
}
"""The names of the sizes, by the module that defines them."""


def pytest_configure() -> None:
    """Called by pytest when it loads this file as a plugin."""
    for names, name, _ in pages.places_of(PAGES):
        names[name] = SMALL
