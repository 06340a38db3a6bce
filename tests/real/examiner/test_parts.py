"""The pure parts of the examination by flux-core's own tests, and the form of its lists."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.real.examiner.comparing import (
    Result,
    Results,
    better,
    judged,
    judged_again,
    outdated,
    share,
    unexplained,
    worse,
)
from tests.real.examiner.page import KINDS, page
from tests.real.examiner.starting import options, settings
from tests.real.examiner.tap import read

HERE = Path(__file__).parent
PRINTED = """\
ok 1 - submit a job
not ok 2 - list it
#\t
#\tflux jobs
ok 3 # skip needs root (missing ROOT)
ok 4 # skip needs more (missing LONGTEST of ROOT,LONGTEST)
Nov 28 broker.err[0]: not ok is no result
ok 5 - submit a job
not ok 6 - broken for long # TODO known breakage
ok 7 - reports # and more
# failed 1 among 7 test(s)
1..7
"""


def table(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((HERE / f"{name}.toml").read_text())


def test_each_case_is_read_by_its_name_and_what_is_no_result_is_left_out() -> None:
    assert read(PRINTED.splitlines()) == {
        "submit a job": "ok",
        "list it": "not ok",
        "needs root": "skip",
        "needs more": "skip",
        "submit a job (2)": "ok",
        "broken for long": "skip",
        "reports # and more": "ok",
    }


@pytest.mark.parametrize(
    ("core", "none", "ours", "result"),
    [
        ("ok", "not ok", "ok", "passes"),
        ("ok", "not ok", "not ok", "fails"),
        ("ok", "not ok", None, "fails"),  # not reached
        ("ok", "not ok", "skip", "fails"),
        ("ok", None, "ok", "passes"),
        ("ok", "ok", "not ok", "needs none"),
        ("ok", "ok", "ok", "needs none"),
        ("not ok", "not ok", "ok", "not here"),
        ("skip", "skip", "skip", "not here"),
    ],
)
def test_a_case_counts_if_flux_core_passes_it_and_nothing_passes_without_an_instance(
    core: Any, none: Any, ours: Any, result: Result
) -> None:
    in_core, with_none, with_us = ({} if it is None else {"a": it} for it in (core, none, ours))
    assert judged(in_core, with_none, with_us, {}) == {"a": result}


def test_what_is_exempt_does_not_count() -> None:
    assert judged({"a": "ok"}, {}, {"a": "ok"}, {"a": "calls flux exec"}) == {"a": "exempt"}


RECORDED: Results = {"x.t": {"a": "passes", "b": "fails", "c": "needs none"}}


def test_a_case_that_passed_and_fails_is_worse_and_the_reverse_is_better() -> None:
    found: Results = {"x.t": {"a": "fails", "b": "passes", "c": "needs none"}}
    assert worse(RECORDED, found) == ["x.t: a"]
    assert better(RECORDED, found) == ["x.t: b"]
    assert worse(RECORDED, {}) == []
    assert share(RECORDED) == (1, 2)


def test_each_case_that_fails_needs_a_reason_and_no_other_case_has_one() -> None:
    assert unexplained(RECORDED, {}) == ["x.t: b"]
    assert unexplained(RECORDED, {"x.t": {"b": 1}}) == []
    assert outdated(RECORDED, {"x.t": {"a": 1, "b": 1}}) == ["x.t: a"]


def test_the_options_of_flux_start_are_read_as_the_scripts_write_them() -> None:
    asked = options(
        ["-o", "-Sbroker.rc1_path=flux run x", "--test-size=4", "-Slog-level=1", "sh a.t", "--v"]
    )
    assert asked.setattr == ["broker.rc1_path=flux run x", "log-level=1"]
    assert (asked.test_size, asked.command) == (4, ["sh a.t", "--v"])
    assert options(["-o,-Sa=b,-Sc=d", "true"]).setattr == ["a=b", "c=d"]


def test_the_tables_of_a_directory_are_one_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[bootstrap]\nhosts = []\n[queues.x]\n")
    (tmp_path / "b.toml").write_text("[queues.y]\n")
    assert settings(tmp_path) == {"queues": {"x": {}, "y": {}}}


# --- the lists of this directory


def test_the_lists_name_cases_of_the_scripts_and_known_words() -> None:
    files = (HERE / "files.txt").read_text().split()
    results, exempt, reasons = table("results"), table("exempt"), table("reasons")
    assert list(results) == files
    assert {each for cases in results.values() for each in cases.values()} <= set(get_args(Result))
    for file, cases in exempt.items():
        assert cases.keys() <= results[file].keys()
    for cases in reasons.values():
        assert {each["kind"] for each in cases.values()} <= KINDS.keys()


def test_each_failure_of_the_results_has_its_reason() -> None:
    results, reasons = table("results"), table("reasons")
    assert unexplained(results, reasons) == []
    assert outdated(results, reasons) == []


@pytest.mark.parametrize("played", [["x.t"], []])
def test_the_page_says_what_the_results_say(played: list[str]) -> None:
    told = page(
        RECORDED,
        {"x.t": {"d": "calls flux exec"}},
        {"x.t": {"b": {"kind": "broker", "reason": "asks for an attribute"}}},
        "commands:    \t\t0.88.0\n",
        played,
    )
    assert "| x.t | 3 | 0 | 1 | 0 | 2 | 1 |" in told
    assert "**1 of 2 cases that count pass, 50.0 %**" in told
    assert "- x.t: `b`: asked of flux-core's broker alone: asks for an attribute." in told
    assert "- x.t: `d`: calls flux exec" in told
    assert ("of an earlier run: `x.t`." in told) == (not played)


def test_what_counts_is_as_recorded_when_a_file_is_played_with_us_alone() -> None:
    ours: dict[str, Any] = {"a": "not ok", "b": "ok", "c": "ok", "new": "ok"}
    assert judged_again(RECORDED["x.t"], ours) == {"a": "fails", "b": "passes", "c": "needs none"}
    assert judged_again(RECORDED["x.t"], {}) == {"a": "fails", "b": "fails", "c": "needs none"}
