"""bulksubmit: inputs, what takes their place, and the jobs that come of it."""

from __future__ import annotations

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.cli.submit.bulk_inputs import split_inputs, split_text
from flux_trio.cli.submit.replacing import Input, compile_methods, replaced
from flux_trio.cli.submit.submission import Submission


def bulksubmit(*args: str, stdin: str | None = None) -> click.testing.Result:
    runner = click.testing.CliRunner(env={"FLUX_TRIO_STATEDIR": "/nowhere"})
    return runner.invoke(main, ["bulksubmit", *args], prog_name="flux-trio", input=stdin)


def dry(*args: str, stdin: str | None = None) -> list[str]:
    result = bulksubmit("--dry-run", *args, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return [line.removeprefix("bulksubmit: submit ") for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("args", "stdin", "jobs"),
    [
        # the examples of flux-bulksubmit(1)
        (["echo", "{}"], "1\n2\n\n3\n", ["echo 1", "echo 2", "echo 3"]),
        (["echo", "{}", ":::", "1", "2"], None, ["echo 1", "echo 2"]),
        (
            ["echo", "{1}", "{0}", ":::", "1", "2", ":::", "3", "4"],
            None,
            ["echo 3 1", "echo 4 1", "echo 3 2", "echo 4 2"],
        ),
        ([":::", "1"], None, ["1"]),
        (["{0}", "{1}", ":::", "1", "2", "3", ":::+", "a", "b"], None, ["1 a", "2 b", "3 a"]),
        (["{}", "::::", "-"], "x y\nz\n", ["x y", "z"]),
        (["--sep=none", "{}"], "x y\nz\n", ["x", "y", "z"]),
        (["--sep=,", "{}"], "x,y", ["x", "y"]),
        (["--sep=\\t", "{}"], "x\ty", ["x", "y"]),
        (["{.%}", "{./}", "{.//}", "{./%}", ":::", "a/b.c"], None, ["a/b b.c a b"]),
        (["{seq}", "{seq1}", "{}", ":::", "a", "b"], None, ["0 1 a", "1 2 b"]),
        (
            ["--define=p2=2**int(x)", "-n", "{.p2}", "hostname", ":::", "0", "1"],
            None,
            ["-n1 hostname", "-n2 hostname"],
        ),
        (["--define=s=x.split()", "{.s}", "z", ":::", "a b"], None, ["a b z"]),
        (["echo", "{{id}}", "{}", ":::", "1"], None, ["echo {{id}} 1"]),
        (["--cc=0-{}", "x", ":::", "1"], None, ["--cc=0-1 x"]),
        (
            ["-t{0}", "--env=A={1}", "--job-name=j", "x", ":::", "1m", ":::", "b"],
            None,
            ["-t1m --env=A=b x"],
        ),
    ],
)
def test_there_is_a_job_for_each_input(args: list[str], stdin: str | None, jobs: list[str]) -> None:
    assert dry(*args, stdin=stdin) == jobs


def test_a_shuffle_loses_no_job() -> None:
    assert sorted(dry("--shuffle", "{}", ":::", *"abcd")) == list("abcd")


def test_the_number_of_jobs_is_told_before_a_dry_run_with_progress() -> None:
    told = bulksubmit("--dry-run", "--progress", "--cc=1-3", "{}", ":::", "a", "b")
    assert told.stdout.splitlines()[0] == "bulksubmit: submitting a total of 6 jobs"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["{1}", ":::", "a"], "Invalid replacement string in command: '{1}'"),
        (["{nosuch}", ":::", "a"], "Invalid replacement string in command: '{nosuch}'"),
        (["-n{1}", "x", ":::", "a"], "Invalid replacement string in --ntasks: '{1}'"),
        (["{.nosuch}", ":::", "a"], "Unknown input string method '.nosuch'"),
        (["{", ":::", "a"], "Single '{' encountered"),
        (["--define=x", "{}", ":::", "a"], "--define: expected NAME=CODE, got 'x'"),
        (["--define=x=1+", "{}", ":::", "a"], "--define: x: invalid syntax"),
        (["--define=x=1/0", "{.x}", ":::", "a"], "--define: x of 'a': ZeroDivisionError: "),
        (["{}", "::::", "/nosuch"], "ERROR: /nosuch: No such file or directory"),
        (["{}", "::::", "a", "b"], "expected one file after ::::, got 2"),
        (["{}", ":::"], "no jobs provided for bulk submission"),
        (["--sep=\\x", "{}"], "--sep: expected a separator"),
    ],
)
def test_what_makes_no_jobs_is_one_line_and_exit_code_1(args: list[str], message: str) -> None:
    result = bulksubmit("--dry-run", *args, stdin="a\n")
    assert result.stderr.startswith("flux-trio bulksubmit: ERROR: ")
    assert message in result.stderr
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, "")


def test_a_linked_list_may_stand_alone_with_standard_input() -> None:
    command, jobs = split_inputs(["c", ":::+", "x", "y"], lambda _: ["1", "2"])
    assert (command, jobs) == (("c",), [("1", "x"), ("2", "y")])


def test_empty_inputs_are_none() -> None:
    assert split_text("\na\n\nb\n", "\\n") == ["a", "b"]


def test_replacing_leaves_what_is_not_text() -> None:
    submission = Submission(command=("{}",), exclusive=True)
    made = replaced(submission, [Input("x", compile_methods([]))], {})
    assert (made.command, made.exclusive) == (("x",), True)
