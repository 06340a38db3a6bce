"""`flux-trio check` of what `flux module trace` prints: flux-core's, and an instance of ours."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest

from flux_trio.broker.tracing import PREFIXES, TYPES, described
from flux_trio.cli import main
from flux_trio.cli.admin.trace_lines import trace_line
from flux_trio.instance import MODULES
from flux_trio.judge import Verdict, judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES, ROUTED_RULES
from flux_trio.trace import Record, read_trace
from tests.support import recorded
from tests.support.scenarios import breaks_of, trace_of

TRACE = "live.sched-simple.trace"


def check(*args: str | Path, stdin: str = "") -> click.testing.Result:
    arguments = ["check", *map(str, args)]
    return click.testing.CliRunner().invoke(main, arguments, input=stdin, prog_name="flux-trio")


def test_trace_of_flux_core_comes_on_standard_input() -> None:
    told = ("--edition", "current", "--known", "flux-core-0.88", "-")
    result = check(*told, stdin=recorded.module_trace(TRACE))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "(flux module trace, " in result.stdout
    assert "broken   0" in result.stdout.splitlines()[-1]


def test_trace_for_people_is_refused_by_name() -> None:
    result = check("-", stdin="[Nov27 19:22]  job-exec rx > job-exec.shutdown [0]\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "line 1: expected `flux module trace --full` without --human and --color" in (
        result.stderr
    )


def test_trace_without_payloads_is_judged_by_who_sends_what() -> None:
    lines = recorded.module_trace(TRACE).splitlines(keepends=True)
    source = read_trace([line for line in lines if line.startswith("2026-")])
    judgement = recorded.judged_source(source, at_rest=True)
    kept = {clause for clause, verdict in judgement.verdicts.items() if verdict is Verdict.KEPT}
    assert judgement.violations == ()
    assert {"27.hello.1", "27.ready.2", "6.request.1"} <= kept
    assert judgement.left_out["27.alloc.2"] == "the trace does not show payloads"


def test_trace_without_payloads_is_said_to_be_one() -> None:
    lines = recorded.module_trace(TRACE).splitlines(keepends=True)
    text = "".join(line for line in lines if line.startswith("2026-"))
    result = check("--edition", "current", "-", stdin=text)
    assert result.exit_code == 0
    assert result.stderr == (
        "flux-trio check: -: no message has a payload, as of `flux module trace` without --full: "
        "only who sends what was judged\n"
    )


def printed(trace: list[Record]) -> list[str]:
    """What `flux-trio module trace --full` prints of the modules in a trace."""
    told = [
        described(each, full=True)
        for each in trace
        if each.kind in PREFIXES and type(each.message) in TYPES and each.party in MODULES
    ]
    return "".join(trace_line(each) + "\n" for each in told).splitlines(keepends=True)


@pytest.mark.parametrize("name", ["everyday", "calls", "execution_reload", "drains", "two_groups"])
def test_module_trace_of_ours_has_the_same_form(name: str) -> None:
    source = read_trace(printed(trace_of(name)))
    rules = (*ALL_RULES, *ROUTED_RULES)
    judgement = judge_trace(source, rules, load_clauses(), at_rest=True)
    assert source.form == "flux module trace"
    assert judgement.violations == ()
    assert {each.clause for each in judgement.unexplained} <= breaks_of(name)
    assert judgement.nrecords > 90
    assert sum(verdict is Verdict.KEPT for verdict in judgement.verdicts.values()) > 50
