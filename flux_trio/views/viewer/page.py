"""The viewer's page: one text with its style, its script and its data. It loads nothing.

The script is plain JavaScript: the files of SCRIPTS one after the other. The data is JSON in an
element that the browser does not run, and the page's policy allows this one script only.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Final

import msgspec

from flux_trio.formats.spelling import spelled
from flux_trio.judge import Clause, Judgement, Verdict, Violation
from flux_trio.views.story import Change
from flux_trio.views.svg import element, escape, page, script_json
from flux_trio.views.viewer.rows import Row

SCRIPTS: Final = ("dom.js", "model.js", "chart.js", "jobs.js", "details.js", "live.js", "main.js")
STYLE: Final = "viewer.css"
TEXT_CHARS_MAX: Final = 1000  # of a violation that is told while an instance runs
BECAUSE_MAX: Final = 100  # records that explain one


class Broken(msgspec.Struct, omit_defaults=True):
    """A violation: the clause or property, who broke it, what was found, at which record and why.

    `follows` says that it is a consequence of another one; of a cause, `following` counts them.
    `is_last` says that further violations of the clause are not told.
    """

    clause: str
    party: str
    text: str
    n: int
    because: list[int]
    follows: bool = False
    following: int = 0
    is_last: bool = False


class Data(msgspec.Struct, kw_only=True):
    """What the script draws."""

    rows: Sequence[Row]
    begun: Mapping[str, str] = {}
    """The states of active jobs before the first row."""
    violations: Sequence[Broken] = ()
    clauses: Mapping[str, str] = {}
    """The sentences of the clauses that are named."""
    clause_sets: list[tuple[str, ...]] = []
    story: Sequence[int] = ()
    """The records that are shown first; empty: all."""
    changes: Sequence[Change] = ()
    """What the turns changed in the cores, in their order."""
    left_out: int = 0
    """The last record of the turns whose changes are not all in `changes`."""
    modules: Sequence[str] = ()
    """Modules that are loaded before the first row, as far as that is known."""
    live: bool = False


def broken_of(things: Iterable[tuple[Violation, list[Violation]]]) -> list[Broken]:
    """Return the violations of broken things: each cause, then those that follow from it."""
    found = []
    for cause, following in things:
        found.append(_broken(cause, following=len(following)))
        found += [_broken(each, follows=True) for each in following]
    return found


def broken_at(found: Sequence[Violation]) -> list[Broken]:
    """Return the violations in one record, as a monitor finds them: those that follow come last.

    Texts are cut to TEXT_CHARS_MAX characters, and reasons to BECAUSE_MAX records.
    """
    broken_here = []
    for each in found:
        following = sum(other.cause is each for other in found)
        broken = _broken(each, follows=each.cause is not None, following=following)
        broken.text, broken.because = broken.text[:TEXT_CHARS_MAX], broken.because[:BECAUSE_MAX]
        broken_here.append(broken)
    return broken_here


def _broken(violation: Violation, *, follows: bool = False, following: int = 0) -> Broken:
    text, because = spelled(violation.text), list(violation.because)
    n = violation.record.n
    return Broken(violation.clause, violation.blamed, text, n, because, follows, following)


def sentences(
    clauses: Mapping[str, Clause], rows: Iterable[Row], broken: Iterable[Broken]
) -> dict[str, str]:
    """Return the sentences of the clauses that rows and violations name."""
    named = {id_ for row in rows for id_ in row.clauses} | {each.clause for each in broken}
    return {id_: clauses[id_].text for id_ in sorted(named) if id_ in clauses}


def viewer_page(title: str, head: Iterable[str], data: Data) -> str:
    """Return the page; `head` are the elements above the drawing."""
    style, script = _file(STYLE), "".join(map(_file, SCRIPTS))
    policy = _policy(style, script, live=data.live)
    body = [
        f'<header id="head">{"".join(head)}</header>',
        _BAR.format(legend=_file("legend.html")),
        '<section id="jobs" aria-label="Jobs"></section>',
        '<main id="chart" tabindex="0" aria-label="Messages"></main>',
        '<aside id="side"><section id="broken"></section>'
        '<section id="details" aria-live="polite"></section></aside>',
        f'<script id="page" type="application/json">{_json(data)}</script>',
        f"<script>{script}</script>",
    ]
    tag = f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'
    return page(title, style, body, tag)


def live_page(
    title: str, clauses: Mapping[str, Clause], modules: Sequence[str], left_out: Iterable[str]
) -> tuple[str, str]:
    """Return the page that reads rows from its server, and its Content-Security-Policy.

    The clauses `left_out` are not judged.
    """
    texts = {id_: each.text for id_, each in clauses.items()}
    data = Data(rows=(), clauses=texts, modules=modules, live=True)
    judged = (
        "Judged from the first record here on. Left out are clauses that need the beginning of the "
        f"trace: {', '.join(left_out)}."
    )
    head = [
        element("h1", escape(title)),
        '<p class="aside" id="live">connecting</p>',
        element("p", escape(judged), class_="aside"),
    ]
    style, script = _file(STYLE), "".join(map(_file, SCRIPTS))
    return viewer_page(title, head, data), _policy(style, script, live=True)


def _policy(style: str, script: str, *, live: bool) -> str:
    """Return the Content-Security-Policy: this script, this style, and nothing else."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "connect-src 'self'" if live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


_BAR: Final = """<div id="bar">
<input id="words" type="search" placeholder="words of a record" aria-label="words of a record"/>
<label hidden><input id="story" type="checkbox"/> only what tells the story</label>
<span id="chips"></span><span id="count"></span>
{legend}<noscript>The drawing needs JavaScript.</noscript>
</div>"""


def _json(data: Data) -> str:
    """Return the data as JSON that can stand in a script element; sets of clauses are listed."""
    sets: dict[tuple[str, ...], int] = {}
    rows = []
    for row in data.rows:
        place: Any = sets.setdefault(row.clauses, len(sets)) if row.clauses else ()
        rows.append(msgspec.structs.replace(row, clauses=place))
    return script_json(msgspec.structs.replace(data, rows=rows, clause_sets=list(sets)))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the hash by which a Content-Security-Policy names a script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# --- the page of a judged trace


def trace_page(
    name: str,
    judgement: Judgement,
    clauses: Mapping[str, Clause],
    rows: Sequence[Row],
    begun: Mapping[str, str],
) -> str:
    """Return the page with these rows of a trace; `begun` is as in `Data`."""
    unexplained = [(each, list[Violation]()) for each in judgement.unexplained]
    broken = broken_of([*judgement.broken_things(), *unexplained])
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
