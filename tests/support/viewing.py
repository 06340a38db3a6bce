"""The viewer's page in a browser: a trace of many messages, and what scrolling draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from flux_trio.lab import JobPlan, Plan, run_plan
from flux_trio.trace import Kind, Record
from tests.support.browser import Browser

SCROLL: Final = """
const [step, first, count] = arguments;
const chart = document.getElementById("chart");
const rows = new Set(), took = [];
let nodes = 0;
for (let top = first * step; took.length < count && top < chart.scrollHeight; top += step) {
  const began = performance.now();
  chart.scrollTop = top;
  viewer.chart.draw();
  chart.firstChild.getBoundingClientRect();  // lays out
  took.push(performance.now() - began);
  nodes = Math.max(nodes, document.querySelectorAll("*").length);
  for (const row of document.querySelectorAll(".row"))
    rows.add(viewer.trace.rows[row.dataset.at].n);
}
return {rows: [...rows], nodes, took};
"""
AT_ONCE: Final = 50
"""Steps in one script, so that no script takes long on a slow machine."""


@dataclass
class Scrolled:
    """The records that were drawn, the most nodes, and the milliseconds of each step."""

    rows: set[int] = field(default_factory=set)
    nodes: int = 0
    took: list[float] = field(default_factory=list)


def scroll(browser: Browser, step: int, count: int) -> Scrolled:
    """Scroll from the top in at most `count` steps of so many pixels."""
    found = Scrolled()
    for first in range(0, count, AT_ONCE):
        part = browser.run(SCROLL, step, first, min(AT_ONCE, count - first))
        found.rows.update(part["rows"])
        found.nodes = max(found.nodes, part["nodes"])
        found.took += part["took"]
    return found


def many_messages(count: int) -> list[Record]:
    """Return at least `count` messages: copies of a small trace, one after the other."""
    trace: list[Record] = []
    run_plan(Plan(1, jobs=(JobPlan(),) * 20), [trace.append])
    messages = sum(record.kind == Kind.SEND for record in trace)
    ncopies, size = -(-count // messages), trace[-1].n
    return [_moved(record, turn * size) for turn in range(ncopies) for record in trace]


def _moved(record: Record, by: int) -> Record:
    ref = record.ref + by if record.ref else 0
    return msgspec.structs.replace(record, n=record.n + by, ref=ref)
