"""Write samples into the pages that show them: `python -m docs.make_samples`.

A sample is a file, or a part of one, or a table that the code makes. The page names it in comments,

    <!-- sample plugins/short_first.py -->
    ...
    <!-- end of sample -->

and the text between the two is written here, so that a page reads the same on every site that
shows Markdown. A path is relative to the page. `from` and `to` are in the first and the last line
that is shown; the lines of `after` and `before` are not shown. `as=text`, at the end, is for a part
that is no code. A test holds the pages against this.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from docs import (
    make_breaches,
    make_conversation,
    make_editions,
    make_exercised,
    make_keys,
    make_native_keys,
    make_one_job,
    make_plugins,
    make_tables,
    make_verbs,
)

DOCS = Path(__file__).parent
_SAMPLE = re.compile(
    r"^<!-- sample ([^\n]+) -->\n.*?^<!-- end of sample -->$", re.DOTALL | re.MULTILINE
)
_LANGUAGES = {".py": "python", ".js": "javascript", ".txt": "text"}


class BadSample(Exception):
    """A sample that cannot be shown; the text says which and why."""


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page that has samples, and its text with the samples as they are now."""
    tables = made()
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if "_build" not in path.parts and _SAMPLE.search(text):
            yield path, filled(path, text, tables)


def made() -> dict[str, str]:
    """Return the samples that are made from the code, by name."""
    parts = {f"jobtap/{name}": text for name, text in make_plugins.parts().items()}
    parts |= {f"testing/{name}": text for name, text in make_plugins.harness_parts().items()}
    tables = {f"tables/{name}": text for name, text in make_tables.tables().items()}
    tables |= {f"faults/{name}": text for name, text in make_breaches.tables().items()}
    tables |= {f"native/{name}": text for name, text in make_native_keys.tables().items()}
    tables |= {f"verbs/{name}": text for name, text in make_verbs.tables().items()}
    tables |= {f"exercised/{name}": text for name, text in make_exercised.tables().items()}
    tables |= {f"editions/{name}": text for name, text in make_editions.tables().items()}
    return (
        parts
        | tables
        | make_conversation.samples()
        | {"one-job": make_one_job.picture(), "keys": make_keys.markdown()}
    )


def filled(path: Path, text: str, tables: dict[str, str]) -> str:
    """Return the text of the page at `path` with its samples; raises BadSample."""
    return _SAMPLE.sub(lambda found: _sample(path, found[1], tables), text)


def _sample(page: Path, words: str, tables: dict[str, str]) -> str:
    name, *options = shlex.split(words)
    if name in tables:
        shown = f"\n{tables[name].strip()}\n"
    else:
        source = page.parent / name
        try:
            text = source.read_text()
        except OSError as error:
            raise BadSample(f"{page.name}: sample {name}: {error.strerror}") from None
        language = _LANGUAGES.get(source.suffix, source.suffix.removeprefix("."))
        if options[-1:] == ["as=text"]:
            language = options.pop().removeprefix("as=")
        shown = _block(_part(f"{page.name}: sample {name}", text, options), language)
    return f"<!-- sample {words} -->\n{shown}\n<!-- end of sample -->"


def _block(text: str, language: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"\n{fence}{language}\n{text}\n{fence}\n"


def _part(where: str, text: str, options: list[str]) -> str:
    lines = text.splitlines()
    for option in options:
        edge, _, mark = option.partition("=")
        places = [place for place, line in enumerate(lines) if mark in line]
        if not mark or not places:
            raise BadSample(f"{where}: no line has {mark!r}")
        match edge:
            case "from":
                lines = lines[places[0] :]
            case "after":
                lines = lines[places[0] + 1 :]
            case "to":
                lines = lines[: places[0] + 1]
            case "before":
                lines = lines[: places[0]]
            case _:
                raise BadSample(f"{where}: expected from=, to=, after= or before=, not {option!r}")
    return "\n".join(lines).strip("\n")


if __name__ == "__main__":
    for page, content in pages():
        page.write_text(content)
