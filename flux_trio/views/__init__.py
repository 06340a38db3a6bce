"""Views: pages and pictures of traces, judgements, simulations and state tables.

Each function returns one self-contained text (SVG, HTML, Markdown, JSON or XML), made from a trace,
from numbers, or from the protocols' tables. The package has no I/O and makes no decisions.
"""

from flux_trio.views.arrows import tell
from flux_trio.views.comparison import FailedRun, Served, ServedRun, Waited, comparison_page
from flux_trio.views.junit import Case, junit_text
from flux_trio.views.sequence import draw_sequence
from flux_trio.views.state_table import draw_states, table_markdown
from flux_trio.views.story import Change, Story, story_text, telling
from flux_trio.views.story_page import story_page
from flux_trio.views.verdict_page import verdict_page
from flux_trio.views.verdicts import (
    cause_lines,
    things_by_clause,
    verdict_json,
    verdict_junit,
    verdict_text,
)

__all__ = [
    "Case",
    "Change",
    "FailedRun",
    "Served",
    "ServedRun",
    "Story",
    "Waited",
    "cause_lines",
    "comparison_page",
    "draw_sequence",
    "draw_states",
    "junit_text",
    "story_page",
    "story_text",
    "table_markdown",
    "tell",
    "telling",
    "things_by_clause",
    "verdict_json",
    "verdict_junit",
    "verdict_page",
    "verdict_text",
]
