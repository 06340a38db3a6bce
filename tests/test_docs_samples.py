"""Each page shows its samples as they are."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from docs.make_samples import DOCS, BadSample, filled, made, pages

PAGE = DOCS / "howto" / "page.md"


made_once = functools.cache(made)


def shown(words: str) -> str:
    return filled(PAGE, f"<!-- sample {words} -->\nold\n<!-- end of sample -->\n", made_once())


def test_the_pages_in_the_tree_have_the_samples_as_they_are() -> None:
    found = dict(pages())
    assert len(found) > 10
    stale = [path.name for path, text in found.items() if path.read_text() != text]
    assert stale == [], "run: python -m docs.make_samples"


def test_no_page_includes_what_only_one_site_shows() -> None:
    texts = {path: path.read_text() for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    assert [path for path, text in texts.items() if "include} " in text] == []


def test_sample_is_shown_as_code_in_its_language(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("a = 1\n")
    text = shown(str(tmp_path / "mine.py"))
    assert "\n```python\na = 1\n```\n" in text
    assert "old" not in text


def test_sample_with_a_code_block_has_a_longer_fence(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```text\na\n```\n")
    assert "\n````md\n```text\na\n```\n````\n" in shown(str(tmp_path / "page.md"))


def test_part_of_a_file_is_shown(tmp_path: Path) -> None:
    source = tmp_path / "mine.txt"
    source.write_text("one\ntwo\nthree\nfour\n")
    assert "```text\ntwo\nthree\n```" in shown(f"{source} from=two to=three")
    assert "```text\ntwo\nthree\n```" in shown(f"{source} after=one before=four")


def test_part_that_is_no_code_is_shown_as_text(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("# a remark\n")
    assert "```text\n# a remark\n```" in shown(f"{tmp_path / 'mine.py'} as=text")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("missing.txt", "page.md: sample missing.txt: No such file or directory"),
        ("faults/clock.txt from=nothing", "no line has 'nothing'"),
        ("faults/clock.txt lines=the", "expected from=, to=, after= or before=, not 'lines=the'"),
    ],
)
def test_sample_that_cannot_be_shown_is_an_error(words: str, error: str) -> None:
    with pytest.raises(BadSample, match=error):
        shown(words)
