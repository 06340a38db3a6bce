"""The viewer's page of a judged trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from flux_trio.judge import Clause, Judgement, Verdict
from flux_trio.views.escaping import escape
from flux_trio.views.svg import element
from flux_trio.views.viewer.page import Data, broken_of, sentences, viewer_page
from flux_trio.views.viewer.rows import Row


def trace_page(
    name: str,
    judgement: Judgement,
    clauses: Mapping[str, Clause],
    rows: Sequence[Row],
    begun: Mapping[str, str],
) -> str:
    """Return the page with these rows of a trace; `begun` is as in `Data`."""
    broken = broken_of(judgement.broken_things())
    named = sentences(clauses, rows, broken)
    data = Data(rows=rows, begun=begun, violations=broken, clauses=named)
    return viewer_page(name, _head(name, judgement, rows), data)


def _head(name: str, judgement: Judgement, rows: Sequence[Row]) -> Iterator[str]:
    yield element("h1", escape(name))
    counts = Counter(judgement.verdicts.values())
    parts = [f"{judgement.nrecords} records ({judgement.form})"]
    if rows and len(rows) < judgement.nrecords:
        parts.append(f"this page has records {rows[0].n} to {rows[-1].n}")
    parts += [f"{counts[verdict]} clauses {verdict}" for verdict in Verdict if counts[verdict]]
    yield element("p", escape(", ".join(parts)), class_="aside")
