"""What is only recommended is advice: named, counted apart, and no reason to end with 1."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from flux_trio.cli.judge.check import check
from flux_trio.judge import Verdict, judge_trace, load_clauses
from flux_trio.judge.clauses.registry import ADVICE, STAY_BREACHES
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Request, Response
from flux_trio.trace import Shown, Source
from flux_trio.views import verdict_json, verdict_junit, verdict_page, verdict_text
from tests.support import recorded
from tests.support.judged import hand_made, made

RECOMMENDS = ("SHOULD", "SHOULD NOT", "RECOMMENDED")
LONG = hand_made(
    made("client", "kvs", Request("kvs.ping", {}, 1)),
    made("kvs", "client", Response("kvs.ping", "x" * 100, Errno.EINVAL, 1)),
)


def test_the_list_has_what_recommends_and_no_more() -> None:
    clauses = load_clauses().values()
    recommend = {each.id for each in clauses if each.level in RECOMMENDS and each.rfc != 28}
    assert recommend - STAY_BREACHES == ADVICE
    assert recommend >= STAY_BREACHES


def checked(path: Path, *options: str) -> tuple[int, str]:
    path.write_text("".join(recorded.lines_of(LONG)), encoding="utf-8")
    done = CliRunner().invoke(check, [str(path), *options])
    return done.exit_code, done.output


def test_advice_is_named_and_ends_with_0(tmp_path: Path) -> None:
    """6.response.4 (readings: Advice)."""
    code, said = checked(tmp_path / "trace")
    assert code == 0
    assert "advice: recommended, and not done\n  6.response.4     1 time " in said
    assert "6.response.4 broken" not in said


def test_strict_makes_a_breach_of_it(tmp_path: Path) -> None:
    assert checked(tmp_path / "trace", "--strict")[0] == 1


def test_every_report_has_it_apart() -> None:
    clauses = load_clauses()
    source = Source("JSON lines", Shown(), iter(LONG))
    found = judge_trace(source, ALL_RULES, clauses).apart()
    assert [each.clause for each in found.advice] == ["6.response.4"]
    assert found.verdicts["6.response.4"] is Verdict.ADVICE
    assert found.is_kept
    records = {each.n: each for each in LONG}
    assert "6.response.4" in verdict_text(found, records)
    (advice,) = verdict_json(found, clauses, records)["advice"]
    assert advice["clause"] == "6.response.4"
    assert "<h2>Advice</h2>" in verdict_page("a trace", found, clauses, records)
    assert 'failures="0"' in verdict_junit(found, clauses, records, "a trace")
