"""A story as one self-contained HTML page: the violation first, what happened, then the viewer.

The viewer shows first the records that tell the story, and for each turn what it changed in the
cores. Without JavaScript the page still has the story's text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from flux_trio.formats.spelling import spelled
from flux_trio.trace import Kind, Record
from flux_trio.views.story import Change, Story, last_of, shown_beats, story_lines
from flux_trio.views.svg import element, escape
from flux_trio.views.viewer import Broken, Data, Rows, viewer_page

SHOWN_MAX: Final = 30
"""Beats whose records are shown first."""

CHANGES_MAX: Final = 400
"""Turns whose changes the page has: the last ones up to the violation."""


ROWS_MAX: Final = 10_000
"""Records that the page has, around the violation: some 3 MB. A world that does not come to rest
has 200,000 records, and more with many jobs.
"""


def story_page(story: Story) -> str:
    """Return the page."""
    shown = _shown(story)
    earlier = story.trace[: shown.start]
    make = Rows(story.trace[shown.start].n if earlier else 0)
    records = story.trace[: shown.stop]
    rows = [row for record in records if (row := make.add(record)) is not None]
    changes, left_out = _changes(story)
    found = Broken(story.broken, story.party, spelled(story.found), story.at, sorted(story.because))
    data = Data(
        rows=rows,
        begun=make.begun,
        modules=_loaded_after(earlier),
        violations=[found],
        clauses={story.broken: story.sentence},
        story=[n for n in _shown_places(story) if rows and n >= rows[0].n],
        changes=changes,
        left_out=left_out,
    )
    return viewer_page(f"{story.broken} is broken", _head(story), data)


def _shown(story: Story) -> range:
    """Return the places in the trace, from 0, of the records that the page has."""
    nrecords = len(story.trace)
    at = bisect_left(story.trace, last_of(story), key=lambda record: record.n)
    begin = max(min(at - ROWS_MAX // 2, nrecords - ROWS_MAX), 0)
    return range(begin, min(begin + ROWS_MAX, nrecords))


def _loaded_after(records: Sequence[Record]) -> list[str]:
    """Return the modules that are loaded after the first records of a trace."""
    loaded: dict[str, None] = {}
    for record in records:
        if record.kind == Kind.MODULE and record.data is not None:
            if record.data["what"] == "started":
                loaded[record.data["module"]] = None
            else:
                loaded.pop(record.data["module"], None)
    return list(loaded)


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


def _shown_places(story: Story) -> list[int]:
    """Return the places of the records that tell the story, with the receipts of what is sent."""
    shown = {record.n for beat in shown_beats(story, SHOWN_MAX) for record in beat}
    ends = (record for record in story.trace if record.kind in (Kind.RECV, Kind.DROP))
    return sorted(shown | {record.n for record in ends if record.ref in shown})


def _head(story: Story) -> Iterator[str]:
    by = f" by {story.party}" if story.party else ""
    yield element("h1", escape(f"{story.broken} is broken{by}"), class_="broken")
    yield element("p", escape(spelled(story.found)), class_="found")
    if story.sentence:
        yield element("p", escape(story.sentence), class_="aside")
    if story.doubt:
        yield element("p", escape(story.doubt), class_="aside")
    lines = escape("\n".join(story_lines(story)))
    yield element("h2", "What happened")
    yield element("pre", lines)
    if text := _left_out(story):
        yield element("p", escape(text), class_="aside")
    if story.played:
        played = element("pre", escape("\n".join(story.played)))
        yield element("details", element("summary", "What was played"), played)


def _left_out(story: Story) -> str:
    """Return how many records the page leaves out; "" if it has all."""
    shown, nrecords = _shown(story), len(story.trace)
    if len(shown) == nrecords:
        return ""
    return (
        f"The page has {len(shown)} of the {nrecords} records. {shown.start} earlier and "
        f"{nrecords - shown.stop} later ones are left out; times below count from the first one "
        "that it has."
    )
