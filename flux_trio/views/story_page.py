"""A story as one self-contained HTML page: the violation first, then drawings and states.

The page needs no network and no server. It has the story's text, timelines of jobs and modules, a
sequence drawing, and for each step the changes that a turn made to the state of a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flux_trio.trace import Record
from flux_trio.views.escaping import escape
from flux_trio.views.sequence import draw_sequence
from flux_trio.views.spelling import spelled
from flux_trio.views.story import Change, Story, last_of, telling, told_beats, told_lines
from flux_trio.views.svg import element
from flux_trio.views.timelines import draw_timelines
from flux_trio.views.verdict_page import STYLE

DRAWN_MAX: Final = 30
"""Records in the sequence drawing."""

STEPS_MAX: Final = 400
"""Turns whose states the page shows: the last ones up to the violation."""

_MORE: Final = """
pre { background: var(--soft); border-radius: 6px; padding: .7rem .9rem; overflow-x: auto;
  font-size: .82rem; line-height: 1.45; }
.found { font-size: 1.05rem; margin: .8rem 0; }
details details summary, .step summary { font-size: .87rem; margin-top: .3rem; }
.step { border-left: 3px solid var(--line); padding-left: .8rem; margin: .5rem 0; }
"""


def story_page(story: Story) -> str:
    """Return the page."""
    title = f"{story.broken} is broken"
    drawn = [record for beat in told_beats(story, DRAWN_MAX) for record in beat]
    body = [
        *_violation(story),
        element("h2", "What happened"),
        element("pre", escape("\n".join(told_lines(story)))),
        *_drawings(story, drawn),
        *_steps(story),
    ]
    head = [
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width"/>',
        element("title", escape(title)),
        element("style", STYLE + _MORE),
    ]
    page = element("html", element("head", *head), element("body", "\n".join(body)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _lines(records: Sequence[Record], story: Story) -> Iterator[str]:
    for record in records:
        yield telling([record], story.trace[0].t, story.at)


def _violation(story: Story) -> Iterator[str]:
    by = f" by {story.party}" if story.party else ""
    yield element("h1", escape(f"{story.broken} is broken{by}"), class_="broken")
    yield element("p", escape(spelled(story.found)), class_="found")
    if story.sentence:
        yield element("p", escape(story.sentence), class_="aside")
    if story.played:
        yield element("pre", escape("\n".join(story.played)))


def _drawings(story: Story, drawn: Sequence[Record]) -> Iterator[str]:
    yield element("h2", "Jobs and modules")
    yield element("figure", draw_timelines(story.trace, story.at, "timelines of jobs and modules"))
    if drawn:
        yield element("h2", "Messages")
        picture = draw_sequence(drawn, story.at, f"the messages before {story.broken} was broken")
        yield element("figure", picture)


def _steps(story: Story) -> Iterator[str]:
    """Yield the turns up to the violation, each with its records and what it changed."""
    changes = [each for each in story.changes if each.after <= last_of(story)][-STEPS_MAX:]
    if not changes:
        return
    yield element("h2", "The cores, turn by turn")
    yield element("p", "A line names a place in the state, its old and its new value.")
    records = {record.n: record for record in story.trace}
    begin = 0
    for change in changes:
        own = [records[n] for n in range(begin + 1, change.after + 1) if n in records]
        begin = change.after
        yield _step(change, own if len(own) < len(story.trace) else [], story)


def _step(change: Change, records: Sequence[Record], story: Story) -> str:
    lines = list(_lines(records, story))
    changed = "\n".join(change.lines) or "no change"
    return element(
        "div",
        element("strong", escape(change.module)),
        *([element("pre", escape("\n".join(lines)))] if lines else []),
        element("pre", escape(changed)),
        element("details", element("summary", "whole state"), element("pre", escape(change.state))),
        class_="step",
    )
