"""A judgement as one self-contained HTML page.

First, each broken clause has its first violations, each with a drawing; what follows from a
violation is folded below it. Then come the departures that were known. A table, which is folded,
has all clauses by RFC; it can be filtered by verdict, RFC and party.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from flux_trio.formats.spelling import spelled
from flux_trio.judge import Clause, Judgement, Verdict, Violation
from flux_trio.trace import Record
from flux_trio.views.sequence import draw_sequence
from flux_trio.views.svg import element, escape, page, table_rows
from flux_trio.views.verdicts import (
    SHOWN_MAX,
    UNEXPLAINED_MAX,
    Thing,
    first_of_each,
    group_of,
    in_groups,
    kind_of,
    occurred,
    only_following,
    story,
    sums_of,
    things_by_clause,
    times,
    verdicts_in,
    why_not,
)

MARKS: Final = {
    Verdict.KEPT: "kept",
    Verdict.BROKEN: "broken",
    Verdict.ADVICE: "advice",
    Verdict.KNOWN: "known",
    Verdict.NOT_EXERCISED: "idle",
}

STYLE: Final = """
:root { color-scheme: light dark; --ink: #24292f; --quiet: #57606a; --page: #ffffff;
  --line: #d8dee4; --soft: #f6f8fa; --kept: #006b4f; --broken: #b34700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --quiet: #9ea7b3; --page: #161b22;
  --line: #30363d; --soft: #21262d; --kept: #3fcf9f; --broken: #ffa657; } }
body { font: 15px/1.5 "DejaVu Sans", Verdana, sans-serif; color: var(--ink);
  background: var(--page); max-width: 1120px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .2rem; }
.aside { color: var(--quiet); }
.sums { display: flex; gap: 1rem; flex-wrap: wrap; margin: 1rem 0; }
.sums div { background: var(--soft); border-radius: 6px; padding: .5rem 1.1rem; }
.sums b { font-size: 1.5rem; display: block; }
.kept { color: var(--kept); } .broken { color: var(--broken); } .idle { color: var(--quiet); }
summary { cursor: pointer; font-size: 1.2rem; margin-top: 2.2rem; }
.follow summary, .follow ul { font-size: .87rem; margin: .4rem 0 0; }
form { display: flex; gap: 1.2rem; flex-wrap: wrap; align-items: center; margin: 1rem 0;
  padding: .6rem .9rem; background: var(--soft); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
th { text-align: left; }
tbody th { padding: 1.1rem .5rem .3rem; font-size: .95rem; border-bottom: 2px solid var(--line); }
td { border-bottom: 1px solid var(--line); padding: .3rem .5rem; vertical-align: top; }
td:nth-child(-n+3) { white-space: nowrap; }
a { color: inherit; }
figure { margin: .6rem 0 1.6rem; overflow-x: auto; border: 1px solid var(--line);
  border-radius: 6px; padding: .5rem; }
figcaption { margin-bottom: .4rem; overflow-wrap: anywhere; }
.why { color: var(--quiet); font-size: .82rem; }
[hidden] { display: none !important; }
"""

SCRIPT: Final = """
const form = document.querySelector("form");
function filter() {
  const verdicts = [...form.querySelectorAll("input:checked")].map(box => box.value);
  const of = (row, name) => !form[name].value || row.dataset[name] === form[name].value;
  for (const body of document.querySelectorAll("tbody")) {
    let left = 0;
    for (const row of body.querySelectorAll("tr[data-rfc]")) {
      row.hidden = !(verdicts.includes(row.dataset.verdict) && of(row, "rfc") && of(row, "party"));
      left += !row.hidden;
    }
    body.hidden = !left;
  }
  for (const part of document.querySelectorAll("section[data-rfc]"))
    part.hidden = !(of(part, "rfc") && of(part, "party"));
}
form.hidden = false;
form.addEventListener("change", filter);
filter();
"""


def verdict_page(
    title: str, judgement: Judgement, clauses: Mapping[str, Clause], records: Mapping[int, Record]
) -> str:
    """Return the page. `records` must have the records that show the violations."""
    verdict = "No clause is broken" if judgement.is_kept else "Broken clauses"
    body = [
        element("h1", escape(title)),
        element("p", f"{judgement.nrecords} records ({escape(judgement.form)})", class_="aside"),
        _sums(judgement),
        element("h2", verdict),
        *_stories(judgement, clauses, records),
        *_advice(judgement),
        *_unexplained(judgement),
        *_known(judgement),
        element(
            "details",
            element("summary", f"All {len(judgement.verdicts)} clauses"),
            _filters(judgement, clauses),
            _table(judgement, clauses),
        ),
        element("script", SCRIPT),
    ]
    return page(title, STYLE, body)


def _advice(judgement: Judgement) -> Iterator[str]:
    if judgement.advice:
        yield element("h2", "Advice")
        yield element("p", "This is recommended, and was not done.", class_="aside")
        counts = Counter(each.clause for each in judgement.advice)
        rows = [
            (id_, times(counts[id_]), escape(spelled(each.text)))
            for id_, each in first_of_each(judgement.advice).items()
        ]
        yield element("table", *table_rows(rows))


def _unexplained(judgement: Judgement) -> Iterator[str]:
    if judgement.unexplained:
        yield element("h2", "Unexplained")
        yield element("p", "This happened, and no clause is broken that says why.", class_="aside")
        rows = [
            (kind_of(each), f"record {each.record.n}", escape(spelled(each.text)))
            for each in judgement.unexplained[:UNEXPLAINED_MAX]
        ]
        yield element("table", *table_rows(rows))


def _known(judgement: Judgement) -> Iterator[str]:
    if judgement.known:
        yield element("h2", "Known departures")
        rows = [(each.clause, occurred(each), escape(each.why)) for each in judgement.known]
        yield element("table", *table_rows(rows))


def _sums(judgement: Judgement) -> str:
    counts = Counter(judgement.verdicts.values())
    parts = [
        element("div", element("b", str(counts[verdict])), verdict.value, class_=MARKS[verdict])
        for verdict in verdicts_in(judgement)
    ]
    sums = sums_of(judgement)
    return element("div", *parts, class_="sums") + (element("p", sums) if sums else "")


def _filters(judgement: Judgement, clauses: Mapping[str, Clause]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" value="{MARKS[verdict]}" '
        f"{'' if verdict == Verdict.NOT_EXERCISED else 'checked'}/> {verdict.value}</label>"
        for verdict in verdicts_in(judgement)
    )
    groups = [name for name, _ in in_groups(judgement)]
    parties = sorted({_party(id_, clauses) for id_ in judgement.verdicts} - {""})
    choices = _select("rfc", "any RFC", groups) + _select("party", "any party", parties)
    return f"<form hidden>{boxes}{choices}</form>"


def _select(name: str, any_: str, values: Iterable[str]) -> str:
    options = [element("option", any_, value="")]
    options += [element("option", escape(value), value=value) for value in values]
    return element("select", *options, name=name, aria_label=any_)


def _table(judgement: Judgement, clauses: Mapping[str, Clause]) -> str:
    bodies, following = [], only_following(judgement)
    for name, ids in in_groups(judgement):
        counts = Counter(judgement.verdicts[id_] for id_ in ids)
        sums = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in verdicts_in(judgement))
        head = element("th", f'{name} <span class="aside">{sums}</span>', colspan="4")
        rows = [_table_row(id_, judgement, clauses, following) for id_ in ids]
        bodies.append(element("tbody", element("tr", head), *rows))
    return element("table", *bodies)


def _table_row(
    id_: str,
    judgement: Judgement,
    clauses: Mapping[str, Clause],
    following: Mapping[str, Violation],
) -> str:
    verdict, party = judgement.verdicts[id_], _party(id_, clauses)
    cause = following[id_].cause if id_ in following else None
    is_told = verdict == Verdict.BROKEN and cause is None
    name = f'<a href="#{id_}">{id_}</a>' if is_told else id_
    sentence = escape(clauses[id_].text) if id_ in clauses else ""
    why = why_not(judgement, clauses, id_)
    if why:
        sentence += f' <span class="why">({escape(why)})</span>'
    if cause is not None:
        link = f'<a href="#{cause.clause}">{cause.clause}</a>'
        sentence += f' <span class="why">(follows from {link})</span>'
    cells = [
        element("td", name),
        element("td", verdict.value, class_=MARKS[verdict]),
        element("td", party or " "),
        element("td", sentence or " "),
    ]
    return element(
        "tr", *cells, data_rfc=group_of(id_), data_verdict=MARKS[verdict], data_party=party
    )


def _stories(
    judgement: Judgement, clauses: Mapping[str, Clause], records: Mapping[int, Record]
) -> Iterator[str]:
    for id_, things in things_by_clause(judgement).items():
        sentence = escape(clauses[id_].text) if id_ in clauses else ""
        figures = [_figure(each, records) for each in things[:SHOWN_MAX]]
        more = len(things) - SHOWN_MAX
        if more > 0:
            figures.append(element("p", f"Broken {more} times more.", class_="aside"))
        yield element(
            "section",
            element("h3", id_, class_="broken"),
            element("div", sentence or " "),
            *figures,
            id=id_,
            data_rfc=group_of(id_),
            data_party=_party(id_, clauses),
        )


def _figure(thing: Thing, records: Mapping[int, Record]) -> str:
    violation, following = thing
    by = f' <span class="aside">(by {escape(violation.blamed)})</span>' if violation.blamed else ""
    caption = element("figcaption", escape(spelled(violation.text)) + by)
    picture = draw_sequence(
        story(violation, records), violation.record.n, f"what broke {violation.clause}"
    )
    return element("figure", caption, picture, *_consequences(following))


def _consequences(following: list[Violation]) -> Iterator[str]:
    """Yield what follows from a violation, folded: the first of each clause."""
    if following:
        count = f"{len(following)} consequence{'s' * (len(following) > 1)}"
        rows = [
            element("li", f"{id_} {escape(spelled(each.text))}")
            for id_, each in first_of_each(following).items()
        ]
        yield element("details", element("summary", count), element("ul", *rows), class_="follow")


def _party(id_: str, clauses: Mapping[str, Clause]) -> str:
    clause = clauses.get(id_)
    return "" if clause is None else (clause.violator or clause.actor)
