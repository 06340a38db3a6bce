"""`flux-trio view`: the page that it writes, and its exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.cli.judge import view as view_module
from flux_trio.trace import Record, record_to_json
from tests.support.judged import edit_payload, find_all
from tests.support.scenarios import trace_of

RECORDING = Path(__file__).parents[1] / "data" / "messages" / "01-single-job-lifecycle.json"


def view(*args: str | Path) -> click.testing.Result:
    arguments = ["view", *map(str, args)]
    return click.testing.CliRunner().invoke(main, arguments, prog_name="flux-trio")


def write(path: Path, trace: Iterable[Record]) -> Path:
    path.write_bytes(b"".join(record_to_json(each) + b"\n" for each in trace))
    return path


def data_of(page: Path) -> dict[str, Any]:
    """What the page's script draws."""
    text = page.read_text()
    found = re.search(r'<script id="page" type="application/json">(.*?)</script>', text)
    assert found is not None
    held: dict[str, Any] = json.loads(found[1])
    return held


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "t.jsonl", trace_of("everyday"))


def test_page_is_written_beside_the_user(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = view(trace)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "wrote t.jsonl.html\n", "")
    held = data_of(tmp_path / "t.jsonl.html")
    assert [row["n"] for row in held["rows"]] == [each.n for each in trace_of("everyday")]
    assert held["violations"] == []
    named = {id_ for ids in held["clause_sets"] for id_ in ids}
    assert "27.alloc.2" in named
    of_rfcs = {id_ for id_ in named if not id_.startswith("invariant.")}
    assert of_rfcs <= held["clauses"].keys()


def test_page_names_what_is_broken(tmp_path: Path) -> None:
    records = trace_of("everyday")
    alloc = find_all(records, "sched.alloc", "request")[0]
    broken = write(tmp_path / "b.jsonl", edit_payload(records, alloc, id="seven"))
    page = tmp_path / "page.html"
    assert view(broken, "-o", page).exit_code == 0
    found = data_of(page)["violations"]
    assert ("27.alloc.2", alloc.n) in [(each["clause"], each["n"]) for each in found]
    causes = [each for each in found if not each.get("follows")]
    assert sum(each.get("following", 0) for each in causes) == len(found) - len(causes)


def test_records_in_the_page_are_chosen(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    records = trace_of("everyday")
    for span, shown in (("100:120", range(100, 121)), (":5", range(1, 6))):
        assert view(trace, "-o", page, "--records", span).exit_code == 0
        assert [row["n"] for row in data_of(page)["rows"]] == list(shown)
    assert view(trace, "-o", page, "--records", "100:").exit_code == 0
    assert data_of(page)["rows"][-1]["n"] == records[-1].n
    assert "this page has records 100 to " in page.read_text()


def test_long_traces_are_cut_with_a_word(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "RECORDS_MAX", 50)
    page = tmp_path / "page.html"
    result = view(trace, "-o", page)
    assert result.exit_code == 0
    assert "the page has the first 50 of " in result.stderr
    assert len(data_of(page)["rows"]) == 50


def test_span_without_records_is_said(trace: Path, tmp_path: Path) -> None:
    result = view(trace, "-o", tmp_path / "page.html", "--records", "5000:")
    assert result.exit_code == 0
    assert "the page has no records: the trace has " in result.stderr


def test_recordings_of_a_router_are_drawn(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert view(RECORDING, "--edition", "current", "-o", page).exit_code == 0
    assert len(data_of(page)["rows"]) > 20


def test_trace_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    result = view(path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{path}: No such file" in result.stderr
    path.write_text("nonsense\n")
    assert view(path).exit_code == 2
    result = view(path, "-o", tmp_path / "no" / "page.html")
    assert result.exit_code == 2


@pytest.mark.parametrize("span", ["5", "a:b", "1:2:3", "-1:2"])
def test_span_of_records_that_is_none(trace: Path, span: str) -> None:
    result = view(trace, "--records", span)
    assert result.exit_code == 2
    assert "expected FIRST:LAST" in result.stderr


def test_span_of_records_that_ends_before_it_begins(trace: Path) -> None:
    result = view(trace, "--records", "5:2")
    assert result.exit_code == 2
    assert "expected LAST after FIRST, got '5:2'" in result.stderr


def test_page_that_cannot_be_written(trace: Path, tmp_path: Path) -> None:
    result = view(trace, "-o", tmp_path / "no" / "page.html")
    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_either_a_trace_or_an_instance_is_shown(trace: Path) -> None:
    for args in ([], [trace, "--live"]):
        result = view(*args)
        assert result.exit_code == 2
        assert "expected either TRACE or --live" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--live", "-o", "page.html"], "--output has an effect only with TRACE"),
        (["--live", "--records", "1:2"], "--records has an effect only with TRACE"),
        (["TRACE", "--port", "0"], "--port has an effect only with --live"),
    ],
)
def test_option_without_effect_is_wrong_usage(trace: Path, args: list[str], said: str) -> None:
    result = view(*(trace if each == "TRACE" else each for each in args))
    assert result.exit_code == 2
    assert said in result.stderr


def test_trace_is_not_replaced_by_its_page(trace: Path, tmp_path: Path) -> None:
    before = trace.read_bytes()
    (tmp_path / "link").symlink_to(trace)
    result = view(trace, "-o", tmp_path / "link")
    assert result.exit_code == 2
    assert "expected another file than the trace" in result.stderr
    assert trace.read_bytes() == before
