"""The command as a whole: what there is, how it starts, how it fails without an instance."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import click.testing
import pytest

from flux_trio import __version__
from flux_trio.cli import main
from flux_trio.cli.app import HEADINGS, LazyGroup
from tests.support.instance import DEADLINE_S, OWN_VARIABLES, environment, flux_trio

# What takes long to import, and what most commands do without.
SLOW = {"anyio", "asyncio", "cbor2", "msgspec", "rich", "trio", "flux_trio.formats"}


def invoke(*args: str, **env: str) -> click.testing.Result:
    runner = click.testing.CliRunner(env=dict.fromkeys(OWN_VARIABLES) | env)
    return runner.invoke(main, args, prog_name="flux-trio")


def all_commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main)
    names = main.list_commands(context)
    assert {"start", "submit", "queue"} <= set(names)
    for name in names:
        command = main.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                yield f"{name} {inner.name}", inner


def test_every_command_says_what_it_does_and_how_it_exits() -> None:
    for name, command in all_commands():
        assert command.help, name
        if not isinstance(command, click.Group):
            assert "Exit codes" in command.help, name


def test_every_option_says_what_it_does() -> None:
    for name, command in all_commands():
        for param in command.params:
            if isinstance(param, click.Option):
                assert param.help, f"{name} {param.name}"


def test_help_and_version_are_quick() -> None:
    """They, and finding out which command is meant, import none of what takes long."""
    code = (
        "import sys, flux_trio.cli.app as app, importlib\n"
        "for name, group in app.COMMANDS.items():\n"
        "    importlib.import_module(f'flux_trio.cli.{group}.{name}')\n"
        f"print(sorted(set({sorted(SLOW)!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_commands_of_a_client_never_import_trio() -> None:
    code = (
        "import sys, os, anyio, flux_trio.client, anyio._backends._asyncio\n"
        "import flux_trio.cli.follow.attach, flux_trio.cli.submit.submission\n"
        "import flux_trio.cli.jobs.job_rows, flux_trio.cli.admin.resource_rows\n"
        "import flux_trio.cli.terminal.events\n"
        "print('trio' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.real
def test_the_module_is_the_command() -> None:
    done = flux_trio("--version")
    assert (done.returncode, done.stdout) == (0, f"flux-trio, version {__version__}\n")


NEEDS_AN_INSTANCE = [  # of each group of commands, and of each way to ask
    ["submit", "true"],
    ["run", "true"],
    ["bulksubmit", "{}", ":::", "x"],
    ["cancel", "f1"],
    ["cancel", "--all"],
    ["jobs"],
    ["job", "info", "f1", "R"],
    ["job", "wait-event", "f1", "start"],
    ["job", "attach", "f1"],
    ["job", "wait", "--all"],
    ["resource", "drain", "0"],
    ["module", "list"],
    ["token", "--user", "root"],
    ["watch", "--all"],
    ["top"],
    ["dmesg"],
    ["update", "f1", "duration=1h"],
]


@pytest.mark.parametrize("args", NEEDS_AN_INSTANCE, ids=" ".join)
def test_without_an_instance_one_sentence_says_how_to_start_one(
    args: list[str], tmp_path: Path
) -> None:
    result = invoke(*args, FLUX_TRIO_STATEDIR=str(tmp_path))
    command = " ".join(["flux-trio", *args[: 2 if args[0] in ("job", "resource", "module") else 1]])
    assert result.stderr == (
        f"{command}: ERROR: no instance runs in {tmp_path}: start one with `flux-trio start`\n"
    )
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"FLUX_TRIO_URI": "ws://127.0.0.1:1", "FLUX_TRIO_TOKEN": "x"}, "nobody listens at"),
        ({"FLUX_TRIO_URI": "nonsense", "FLUX_TRIO_TOKEN": "x"}, "nonsense"),
        ({"FLUX_TRIO_URI": "ws://127.0.0.1:1"}, "FLUX_TRIO_TOKEN is not"),
    ],
)
def test_an_instance_that_cannot_be_reached_is_one_sentence(
    env: dict[str, str], message: str
) -> None:
    result = invoke("jobs", **env)
    assert message in result.stderr
    assert result.stderr.startswith("flux-trio jobs: ERROR: ")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["cancel"], "No target jobs were provided"),
        (
            ["cancel", "--all", "f1"],
            "Do not specify a list of jobids with --all,--user,--states options",
        ),
        (["cancel", "-S", "inactive"], "--states: Invalid state inactive specified"),
        (["job", "raise", "xyz"], "JOBID: expected a job id such as"),
        (["job", "raise", "-m", "a", "f1", "b"], "Do not set note on command line and with"),
        (["job", "kill", "-s", "NOSUCH", "f1"], "--signal: Invalid signal NOSUCH"),
        (["job", "urgency", "f1", "32"], "N: expected 0 to 31"),
        (["job", "memo", "f1", "a"], "no value for key=a"),
        (["job", "memo", "f1", "a=1", "a.b=2"], "a: expected an object"),
        (["job", "memo", "f1", "=1"], "expected KEY=VALUE with a dotted key, got '=1'"),
        (["job", "memo", "f1", ".=1"], "expected KEY=VALUE with a dotted key, got '.=1'"),
        (["job", "memo", "f1", "x=1", "a..b=1"], "with a dotted key, got 'a..b=1'"),
        (["job", "memo", "f1", f"a={'[' * 100_000}"], "a: expected less deeply nested JSON"),
        (["job", "wait", "--all", "f1"], "jobid not supported with --all"),
        (["job", "timeleft"], "expected a JOBID: this command does not run inside a job"),
        (["cancel", "xyz"], "JOBID: expected a job id such as ƒuZZybuNNy, 6731191091817518"),
        (["cancel", "-u", "nosuchuser"], "--user: there is no user 'nosuchuser'"),
        (["token", "--user", "nosuchuser"], "--user: there is no user 'nosuchuser'"),
        (["jobs", "fIO"], "JOBID: expected an F58 job id"),
        (["jobs", "-o", "{nosuch}"], "Unknown format field: nosuch"),
        (["jobs", "-o", "id"], "--format: No such format id (Did you mean '{id}'?)"),
        (["jobs", "-o", "{id"], "expected '}' before end of string"),
        (["jobs", "-f", "nosuch"], "Invalid filter specified: nosuch"),
        (["job", "id", "0xyz"], "expected a hexadecimal job id"),
        (["job", "wait-event", "-m", "x", "f1", "e"], "must specify a context test as key=value"),
        (["job", "wait-event", "-t", "x", "f1", "e"], "--timeout: expected a duration"),
        (["simulate", "/nosuch", "--nodes", "1", "--cores", "1"], "/nosuch: No such file"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_code_1(args: list[str], message: str) -> None:
    result = invoke(*args)
    assert message in result.stderr
    assert result.stderr.startswith("flux-trio ")
    assert ": ERROR: " in result.stderr
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, "")


@pytest.mark.parametrize(
    "args",
    [
        ["nosuch"],
        ["jobs", "--nosuch"],
        ["jobs", "-c", "x"],
        ["job", "nosuch"],
        ["job", "id", "--to=nosuch", "f1"],
        ["job", "info", "f1"],
        ["job", "raise"],
        ["job", "raise", "-s", "8", "f1"],
        ["job", "last", "x"],
        ["job", "status"],
        ["token"],
        ["simulate", "x", "--nodes", "0", "--cores", "1"],
        ["simulate", "x", "--nodes", "1", "--cores", "1", "--policy", "nosuch"],
    ],
)
def test_wrong_usage_is_exit_code_2(args: list[str]) -> None:
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(
        r"flux-trio[a-z ]*: ERROR: .* \(see flux-trio[a-z ]* --help\)\n", result.stderr
    )


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["sumbit"], "'submit'"),
        (["queue", "lst"], "'list'"),
        (["run", "--urgencyy=3"], "'--urgency'"),
    ],
)
def test_a_wrong_word_gets_those_that_it_is_like(args: list[str], meant: str) -> None:
    assert f"{meant}" in invoke(*args).stderr.partition("mean")[2]


def test_the_help_lists_the_commands_by_reader_and_cuts_no_summary() -> None:
    shown = invoke("--help").stdout
    for heading in HEADINGS:
        assert f"\n{heading}:\n" in shown
    assert "submit jobs, watch them, fail, cancel, and reload the scheduler." in " ".join(
        shown.split()
    )


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("dec", "6731191091817518"),
        ("hex", "0x17e9fb8df16c2e"),
        ("kvs", "job.0017.e9fb.8df1.6c2e"),
        ("dothex", "0017.e9fb.8df1.6c2e"),
        ("f58", "ƒuZZybuNNy"),
        ("f58plain", "fuZZybuNNy"),
        ("words", "reform-remote-galileo--heart-package-academy"),
    ],
)
def test_job_ids_are_converted_from_and_to_every_form(form: str, text: str) -> None:
    assert invoke("job", "id", f"--to={form}", "ƒuZZybuNNy").stdout == f"{text}\n"
    assert invoke("job", "id", "--to=f58", text).stdout == "ƒuZZybuNNy\n"


def test_job_ids_may_come_from_standard_input() -> None:
    runner = click.testing.CliRunner()
    result = runner.invoke(main, ["job", "id", "--to=hex"], input="f2\n\n 58 \n")
    assert result.stdout == "0x1\n0x3a\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [(["job", "nonsense"], 2), (["check", "/nonexistent"], 2), (["job", "id", "nonsense"], 1)],
)
@pytest.mark.parametrize("to", ["2>/dev/full", "2>&-"])
def test_exit_code_of_an_error_is_the_same_if_it_cannot_be_written(
    words: list[str], code: int, to: str
) -> None:
    command = [sys.executable, "-m", "flux_trio", *words]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {to}', "sh", *command],
        env=environment(),
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["fsck", "--help"], ["job", "id", "ƒ2"]]
)
def test_command_whose_standard_output_is_closed_or_full_has_no_traceback(words: list[str]) -> None:
    command = [sys.executable, "-m", "flux_trio", *words]
    full, closed = (
        subprocess.run(
            ["sh", "-c", f'exec "$@" {to}', "sh", *command],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        for to in (">/dev/full", ">&-")
    )
    assert full.returncode == 1
    assert full.stderr == "flux-trio: ERROR: standard output: No space left on device\n"
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "-"], "got nothing"),
        (["bulksubmit", "--dry-run", "echo"], "no jobs provided for bulk submission"),
        (["submit", "--dry-run", "--jobspec", "-"], "jobspec: expected a JSON object"),
        (["top"], "no instance runs in "),
        (["job", "id"], ""),
    ],
)
def test_standard_input_that_is_closed_is_empty(words: list[str], said: str) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "flux_trio", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (said in done.stderr) if said else done.stderr == ""
    assert "Traceback" not in done.stderr


def test_collector_waits_for_more_objects_than_imports_create_and_is_left_as_it_was() -> None:
    before, seen = gc.get_threshold(), list[int]()

    class Seeing(LazyGroup):
        def invoke(self, ctx: click.Context) -> None:
            seen.append(gc.get_threshold()[0])

    assert before[0] < 90_000
    Seeing("see", invoke_without_command=True).main([], standalone_mode=False)
    assert seen[0] > 90_000
    assert gc.get_threshold() == before
