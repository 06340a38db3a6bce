"""A story as one self-contained HTML page: the violation first, what happened, then the viewer.

The viewer shows first the records that tell the story, and for each turn what it changed in the
cores. Without JavaScript the page still has the story's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flux_trio.trace import Kind
from flux_trio.views.escaping import escape
from flux_trio.views.spelling import spelled
from flux_trio.views.story import Change, Story, last_of, told_beats, told_lines
from flux_trio.views.svg import element
from flux_trio.views.viewer import Broken, Data, Rows, viewer_page

SHOWN_MAX: Final = 30
"""Beats whose records are shown first."""

CHANGES_MAX: Final = 400
"""Turns whose changes the page has: the last ones up to the violation."""


def story_page(story: Story) -> str:
    """Return the page."""
    make = Rows()
    rows = [row for record in story.trace if (row := make.take(record)) is not None]
    changes, left_out = _changes(story)
    found = Broken(story.broken, story.party, spelled(story.found), story.at, sorted(story.because))
    data = Data(
        rows=rows,
        violations=[found],
        clauses={story.broken: story.sentence},
        told=_told(story),
        changes=changes,
        left_out=left_out,
    )
    return viewer_page(f"{story.broken} is broken", _head(story), data)


def _changes(story: Story) -> tuple[list[Change], int]:
    """Return the last CHANGES_MAX changes up to the violation, after the one before of each core.

    So the page has the state of a core that none of the last turns has changed. The number is the
    place of the last record whose turn may be left out.
    """
    found = [each for each in story.changes if each.after <= last_of(story)]
    begin = max(len(found) - CHANGES_MAX, 0)
    before = {each.module: each for each in found[:begin]}
    kept = [*sorted(before.values(), key=lambda each: each.after), *found[begin:]]
    return kept, found[begin - 1].after if begin else 0


def _told(story: Story) -> list[int]:
    """Return the places of the records that tell the story, with the receipts of what is sent."""
    told = {record.n for beat in told_beats(story, SHOWN_MAX) for record in beat}
    ends = (record for record in story.trace if record.kind in (Kind.RECV, Kind.DROP))
    return sorted(told | {record.n for record in ends if record.ref in told})


def _head(story: Story) -> Iterator[str]:
    by = f" by {story.party}" if story.party else ""
    yield element("h1", escape(f"{story.broken} is broken{by}"), class_="broken")
    yield element("p", escape(spelled(story.found)), class_="found")
    if story.sentence:
        yield element("p", escape(story.sentence), class_="aside")
    if story.doubt:
        yield element("p", escape(story.doubt), class_="aside")
    lines = escape("\n".join(told_lines(story)))
    yield element("h2", "What happened")
    yield element("pre", lines)
    if story.played:
        played = element("pre", escape("\n".join(story.played)))
        yield element("details", element("summary", "What was played"), played)
