"""What a step of scrolling through a page of 10,000 messages costs in a browser."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from flux_trio.views.viewer import Data, Rows, viewer_page
from tests.benchmarks.measure import Figure, rounds, scaled
from tests.support.browser import WHY_NOT, open_browser
from tests.support.viewing import many_messages, scroll

MESSAGES = scaled(10_000)
STEPS = scaled(300)
WHEEL_PX, SCREEN_PX = 120, 700
ROUNDS = rounds(3)  # machines have moods


def view_10k() -> Iterator[Figure]:
    """Milliseconds of script and layout of a step, the median; then the most nodes of the page.

    First steps of a wheel, then those of a whole screen. None where there is no browser.
    """
    if WHY_NOT:
        yield Figure(None, f"not measured: {WHY_NOT}", 0)
        return
    make = Rows()
    rows = [row for record in many_messages(MESSAGES) if (row := make.add(record)) is not None]
    nodes = 0
    with tempfile.TemporaryDirectory() as directory, open_browser() as browser:
        page = Path(directory) / "page.html"
        page.write_text(viewer_page("10,000 messages", [], Data(rows=rows)))
        for step in (WHEEL_PX, SCREEN_PX):
            took = []
            for _ in range(ROUNDS):
                browser.open(page)
                found = scroll(browser, step, STEPS)
                took.append(median(found.took))
                nodes = max(nodes, found.nodes)
            yield Figure(round(min(took), 2), f"ms a step of {step} px", MESSAGES)
    yield Figure(nodes, "nodes", MESSAGES)
