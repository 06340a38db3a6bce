"""Write the page of what has changed since the classic edition, from the registry of clauses.

`python -m docs.make_changed` writes it; a test compares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from flux_trio.judge import Clause, load_clauses
from flux_trio.judge.rules import CURRENT_RULES

PAGE = Path(__file__).parent / "reference" / "what-changed.md"
HEAD = """\
# What changed since classic

<!-- Made from the registry of clauses by `python -m docs.make_changed`; not to be edited. -->

The edition *classic* is that of the texts of 2022 and 2023, *current* that of the newest ones, as
today's flux-core speaks them ([which texts](judge/index.md)). A clause that is not here is the same
in both. `flux-trio check --edition current` judges by those on the right; a clause with a rule of
its own there is marked with a dot (•). What flux-core does otherwise than the newest text is on
[its page](flux-core-0.88.md).
"""
_GONE = "*(dropped)*"
_NEW = "*(new)*"


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    judged = {rule.clause for rule in CURRENT_RULES if rule.is_current}
    clauses = load_clauses().values()
    changed = [each for each in clauses if each.newest or each.kind == "current"]
    for rfc in sorted({each.rfc for each in changed}):
        parts += ["", f"## RFC {rfc}", "", "| clause | classic | current |", "|---|---|---|"]
        parts += _rows((each for each in changed if each.rfc == rfc), judged)
    return "\n".join([*parts, ""])


def _rows(clauses: Iterable[Clause], judged: set[str]) -> Iterator[str]:
    for each in clauses:
        mark = " •" if each.id in judged else ""
        is_new = each.kind == "current"
        before = _NEW if is_new else each.text
        after = each.text if is_new else (each.now or _GONE)
        yield f"| {each.id}{mark} | {_cell(before)} | {_cell(after)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
