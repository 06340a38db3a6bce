"""Each place at which a command shows words of others: they drive no terminal and forge no line."""

from __future__ import annotations

import json
from operator import itemgetter

import pytest

from flux_trio.cli.admin.trace_lines import trace_line
from flux_trio.cli.follow.output import Outputs
from flux_trio.cli.terminal.columns import Field, Layout
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.events import EventTexts, json_text
from flux_trio.formats import printable, printable_json
from flux_trio.views.svg import text as svg_text

WORDS = "evil\x1b[2J\nroot: all is well\u202e\x9b"
SHOWN = r"evil\x1b[2J\nroot: all is well\u202e\x9b"


def test_a_table() -> None:
    fields = {name: Field(name.upper(), itemgetter(name)) for name in ("name", "id")}
    (line,) = Layout("{name:.40}|{id}", fields).lines([{"name": WORDS, "id": 1}], header=False)
    assert line == f"{SHOWN[:40]}|1"


def test_an_eventlog() -> None:
    note = {"note": WORDS, WORDS: 1}
    line = json.dumps({"timestamp": 1.0, "name": "memo", "context": note}, ensure_ascii=False)
    text = EventTexts().text(line)
    assert text.isprintable()
    assert SHOWN in text


def test_json_has_the_same_value_and_is_printable() -> None:
    """JSON leaves U+009B as it is, which begins an escape sequence, and what turns text around."""
    words = f"{WORDS}\u2028\U000e0001\xe9\N{NO-BREAK SPACE}"
    line = json.dumps(
        {"timestamp": 1.0, "name": "memo", "context": {words: words}}, ensure_ascii=False
    )
    for text in (EventTexts("json").text(line), json_text(json.loads(line)), printable_json(line)):
        assert json.loads(text) == json.loads(line)
        assert printable(text) == text
        assert "\xe9" in text


def test_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own lines stay lines, but none begins as an error of a command does."""
    CommandError(f"refused: {WORDS}").show()
    remark(WORDS)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith(r"ERROR: refused: evil\x1b[2J")
    assert second == r"  root: all is well\u202e\x9b"
    assert third.endswith(SHOWN)


def test_a_line_about_a_job() -> None:
    written: list[bytes] = []
    outputs = Outputs(written.append, written.append)
    outputs.line(WORDS)
    outputs.remark(WORDS)
    assert written == [f"{SHOWN}\n".encode()] * 2


def test_a_line_of_a_trace() -> None:
    told = {
        "timestamp": 1.0,
        "name": "sched",
        "prefix": ">",
        "type": "response",
        "topic": WORDS,
        "payload_size": 1,
        "errnum": 1,
        "errstr": WORDS,
    }
    head, below = trace_line(told).splitlines()
    assert SHOWN in head
    assert below == SHOWN


def test_a_page() -> None:
    assert svg_text(0, 0, f"<b>{WORDS}").count("\x1b") == 0
