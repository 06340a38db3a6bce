"""docs/readings.md: every decision that is cited is there, once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "readings.md"
HEADINGS = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
SOURCES = sorted(
    path
    for room in ("flux_trio", "plugins", "tests", "docs")
    for kind in ("*.py", "*.toml", "*.md")
    for path in (ROOT / room).rglob(kind)
    if path not in (PAGE, Path(__file__)) and "_build" not in path.parts
)

_WORD = re.compile(r"\b[Rr]eadings\b(?!\.md|\n|\s+of\b)")
_SPACE = r"\s+(?:#\s*)?"  # a citation may go on in the next line, also of a comment
_HEADING = "|".join(_SPACE.join(map(re.escape, heading.split())) for heading in HEADINGS)
_CITED = re.compile(rf":{_SPACE}({_HEADING})(?=[).;\"]|$)", re.MULTILINE)


def citations(text: str) -> list[str]:
    """Of each word `readings`, the heading after it, or the words that stand in its place."""
    found = []
    for word in _WORD.finditer(text):
        cited = _CITED.match(text, word.end())
        words = text[word.start() : word.end() + 60] if cited is None else cited[1]
        found.append(f"{'' if cited else '?'}{re.sub(_SPACE, ' ', words)}")
    return found


def test_every_citation_is_a_heading_of_the_page() -> None:
    found = {path.relative_to(ROOT): citations(path.read_text()) for path in SOURCES}
    unknown = {path: cited for path, all_ in found.items() for cited in all_ if cited[0] == "?"}
    assert unknown == {}
    assert sum(map(len, found.values())) > 50, "the search has found what there is"


def test_every_heading_is_there_once() -> None:
    assert [heading for heading, count in Counter(HEADINGS).items() if count > 1] == []


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("(readings: Resume).", ["Resume"]),
        ('"readings: ENOSYS"', ["ENOSYS"]),
        ("# readings: RFC 28's\n    # grow example; and readings: Resume.", 2),
        ("readings: Resumed.", ["?readings: Resumed."]),
        ("Readings 31: so it is", ["?Readings 31: so it is"]),
        ("two clock readings of it, a reading, docs/readings.md", []),
    ],
)
def test_a_citation_is_the_word_and_a_whole_heading(text: str, cited: list[str] | int) -> None:
    found = citations(text)
    assert found == cited if isinstance(cited, list) else len(found) == cited
