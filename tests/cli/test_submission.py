"""Options of submit and run, and the jobspec that comes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click.testing
import pytest

import flux_trio
from flux_trio.cli import main
from flux_trio.cli.submit.submission import SHELL_OPTIONS, Submission, parse_attribute

DEEP = "[" * 5_000 + "]" * 5_000
JOBSPECS = Path(__file__).parents[1] / "data" / "jobspecs"


def jobspec(*command: str, **options: Any) -> dict[str, Any]:
    limits = options.pop("limits", {})
    submission = Submission(command=command or ("true",), **options)
    return submission.to_jobspec({"HOME": "/h"}, "/here", 1000.0, limits).to_json()


def test_shell_options_without_an_effect_are_named() -> None:
    setopt = (
        "mpi=none",
        "pmi.x=1",
        "exit-timeout=1s",
        "output.mode=append",
        "mpi=2",
        "stop-tasks-in-exec",
    )
    submission = Submission(command=("true",), setopt=setopt)
    assert submission.ignored_options() == ["mpi", "stop-tasks-in-exec"]


def test_options_that_the_execution_service_reads_have_an_effect() -> None:
    """And no other one is said to have."""
    package = Path(flux_trio.__file__).parent
    found = re.compile(r"system\.shell\.options\.([a-z-]+)")
    sources = [
        path.read_text()
        for room in ("cores/exec", "formats")
        for path in (package / room).glob("*.py")
    ]
    used = {name for text in sources for name in found.findall(text)}
    refused = {"pty"}  # where it is interactive; without that it changes nothing
    assert (used - refused) | {"output"} == SHELL_OPTIONS


def system(**options: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = jobspec(**options)["attributes"]["system"]
    return attributes


def shell_options(**options: Any) -> dict[str, Any]:
    return {"shell": {"options": options}}


def slot(cores: int = 1, gpus: int = 0, count: int = 1) -> dict[str, Any]:
    children = [{"type": "core", "count": cores}]
    children += [{"type": "gpu", "count": gpus}] if gpus else []
    return {"type": "slot", "count": count, "with": children, "label": "task"}


@pytest.mark.parametrize(
    ("options", "resources"),
    [
        ({}, [slot()]),
        ({"ntasks": "4"}, [slot(count=4)]),
        ({"ntasks": "2", "cores_per_task": "3", "gpus_per_task": "1"}, [slot(3, 1, 2)]),
        ({"ntasks": "4", "nodes": "2"}, [{"type": "node", "count": 2, "with": [slot(count=2)]}]),
        (
            {"ntasks": "4", "nodes": "2", "exclusive": True},
            [{"type": "node", "count": 2, "exclusive": True, "with": [slot(count=2)]}],
        ),
        # nodes alone are whole nodes with a task on each
        ({"nodes": "3"}, [{"type": "node", "count": 3, "exclusive": True, "with": [slot()]}]),
    ],
)
def test_resources_follow_from_the_counts(options: dict[str, Any], resources: object) -> None:
    assert jobspec(**options)["resources"] == resources


def test_the_job_runs_here_with_this_environment_and_no_limit() -> None:
    made = jobspec("sleep", "1")
    assert made["tasks"] == [{"command": ["sleep", "1"], "slot": "task", "count": {"per_slot": 1}}]
    assert made["attributes"] == {
        "system": {"duration": 0, "cwd": "/here", "environment": {"HOME": "/h"}}
    }


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({"time_limit": "90s"}, {"duration": 90.0}),
        ({"time_limit": "0"}, {"duration": 0}),
        ({"cwd": "/x"}, {"cwd": "/x"}),
        ({"env": ("-*", "A=b")}, {"environment": {"A": "b"}}),
        ({"queue": "batch"}, {"queue": "batch"}),
        ({"job_name": "n"}, {"job": {"name": "n"}}),
        ({"bank": "b"}, {"bank": "b"}),
        (
            {"input": "i", "output": "{{id}}.o", "error": "e"},
            {
                "shell": {
                    "options": {
                        "input": {"stdin": {"type": "file", "path": "i"}},
                        "output": {
                            "stdout": {"type": "file", "path": "{{id}}.o"},
                            "stderr": {"type": "file", "path": "e"},
                        },
                    }
                }
            },
        ),
        (
            {"input": "i", "output": "o", "label_io": True},
            shell_options(
                input={"stdin": {"type": "file", "path": "i"}},
                output={"stdout": {"type": "file", "path": "o", "label": True}},
            ),
        ),
        ({"label_io": True}, {}),
        ({"setopt": ("a.b=1", "c")}, {"shell": {"options": {"a": {"b": 1}, "c": 1}}}),
        ({"signal": "USR2@5m"}, shell_options(signal={"signum": 12, "timeleft": 300.0})),
        ({"signal": "@90"}, shell_options(signal={"signum": 10, "timeleft": 90.0})),
        ({"signal": "15"}, shell_options(signal={"signum": 15, "timeleft": 60.0})),
        ({"taskmap": "cyclic"}, shell_options(taskmap={"scheme": "cyclic", "value": ""})),
        (
            {"taskmap": "manual:[[0,1,1,1]]"},
            shell_options(taskmap={"scheme": "manual", "value": "[[0,1,1,1]]"}),
        ),
        ({"limits": {"core": 0, "memlock": 1}}, shell_options(rlimit={"core": 0})),
        (
            {"env": ("-*", "A={{id}}", "B=$HOME/{{name}}")},
            {
                "environment": {},
                **shell_options(**{"env-expand": {"A": "{{id}}", "B": "$HOME/{{name}}"}}),
            },
        ),
        ({"dependency": ()}, {}),
        (
            {"dependency": ("afterok:ƒ3", "singleton"), "begin_time": ("+12.5s",)},
            {
                "dependencies": [
                    {"scheme": "afterok", "value": "ƒ3"},
                    {"scheme": "singleton", "value": ""},
                    {"scheme": "begin-time", "value": "1012.500"},
                ]
            },
        ),
        ({"requires": ("big",)}, {"constraints": {"properties": ["big"]}}),
        (
            {"requires": ("a|b", "host:c")},
            {
                "constraints": {
                    "and": [
                        {"or": [{"properties": ["a"]}, {"properties": ["b"]}]},
                        {"hostlist": ["c"]},
                    ]
                }
            },
        ),
        (
            {"setattr": ("exec.test.run_duration=0.1", "foo", "bar=x y")},
            {"exec": {"test": {"run_duration": 0.1}}, "foo": 1, "bar": "x y"},
        ),
    ],
)
def test_options_are_attributes(options: dict[str, Any], attributes: dict[str, Any]) -> None:
    """26.format.3, 26.format.4, 33.tools.6: dependencies among them; no key without any."""
    assert system(**options) == {**system(), **attributes}


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("user.x=[1]", ("user.x", [1])),
        ("system.x=null", ("system.x", None)),
        ("attributes.system.x=1", ("system.x", 1)),
        ("x=a=b", ("system.x", "a=b")),
        (".other.x=1", ("other.x", 1)),
        ('x="1"', ("system.x", "1")),
    ],
)
def test_an_attribute_is_json_if_it_can_be(text: str, attribute: object) -> None:
    assert parse_attribute(text) == attribute


@pytest.mark.parametrize(
    ("options", "slots", "per_resource"),
    [
        ({"cores": "4"}, [slot(count=4)], None),
        ({"cores": "4", "tasks_per_core": "2"}, [slot(count=4)], {"type": "core", "count": 2}),
        (
            {"nodes": "2", "tasks_per_node": "3"},
            [{"type": "node", "count": 2, "exclusive": True, "with": [slot()]}],
            {"type": "node", "count": 3},
        ),
        (
            {"nodes": "2", "cores": "4", "gpus_per_node": "1"},
            [{"type": "node", "count": 2, "with": [slot(2, 1)]}],
            None,
        ),
    ],
)
def test_tasks_may_be_counted_by_resource(
    options: dict[str, Any], slots: object, per_resource: object
) -> None:
    made = jobspec(**options)
    assert made["resources"] == slots
    shell = made["attributes"]["system"].get("shell", {"options": {"per-resource": None}})
    assert shell["options"]["per-resource"] == per_resource


def test_rules_for_the_environment_are_taken_in_their_order(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("# of the job\n\nB=$A\n")
    args = ["--env-remove=*", "--env=A=1", "--env-file", str(rules), "--env=A=2", "--env-remove=X*"]
    printed = json.loads(submit("--dry-run", *args, "true").stdout)
    assert printed["attributes"]["system"]["environment"] == {"A": "2", "B": "1"}


def test_an_attribute_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": [1]}')
    assert parse_attribute(f"^user.x={tmp_path}/x.json") == ("user.x", {"a": [1]})


def test_file_of_an_attribute_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(DEEP)
    with pytest.raises(ValueError, match=r"deep\.json: expected less deeply nested JSON"):
        parse_attribute(f"^user.x={tmp_path}/deep.json")


def test_copies_have_their_number_in_options_command_and_environment() -> None:
    args = ["--cc=3-4", "--job-name=n{cc}", "--env-remove=*", "echo", "{cc}", "{{id}}"]
    printed = json.loads(submit("--dry-run", *args).stdout)
    assert printed["tasks"][0]["command"] == ["echo", "3", "{{id}}"]
    system = printed["attributes"]["system"]
    assert (system["job"], system["environment"]) == ({"name": "n3"}, {"FLUX_JOB_CC": "3"})
    without = json.loads(submit("--dry-run", "--bcc=5", "--env-remove=*", "echo", "{cc}").stdout)
    assert without["tasks"][0]["command"] == ["echo", "5"]
    assert without["attributes"]["system"]["environment"] == {}


def test_flags_are_a_mask() -> None:
    assert Submission(flags=("debug,waitable",)).flag_mask() == 3
    assert Submission(flags=("novalidate", "debug")).flag_mask() == 5
    assert Submission(flags=("waitable",), debug=True).flag_mask() == 3
    assert Submission().flag_mask() == 0


def submit(*args: str, stdin: str | None = None) -> click.testing.Result:
    runner = click.testing.CliRunner(env={"FLUX_TRIO_STATEDIR": "/nowhere"})
    return runner.invoke(main, ["submit", *args], prog_name="flux-trio", input=stdin)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("0.5", 30), ("30s", 30), ("1.5h", 5400), ("100ms", 0.1), ("0", 0)],
)
def test_a_time_limit_is_in_minutes_unless_it_has_a_unit(text: str, seconds: float) -> None:
    printed = json.loads(submit("--dry-run", "-t", text, "true").stdout)
    assert printed["attributes"]["system"]["duration"] == seconds


def test_options_after_the_command_are_the_commands() -> None:
    printed = json.loads(submit("--dry-run", "-n", "2", "ls", "-n", "--", "x").stdout)
    assert printed["tasks"][0]["command"] == ["ls", "-n", "--", "x"]
    assert json.loads(submit("--dry-run", "--", "ls", "-l").stdout)["tasks"][0]["command"] == [
        "ls",
        "-l",
    ]


def test_a_jobspec_file_is_taken_as_it_is() -> None:
    path = JOBSPECS / "rfc25-use-case-1.1.json"
    expected = json.loads(path.read_text())
    assert json.loads(submit("--dry-run", "--jobspec", str(path)).stdout) == expected
    from_stdin = submit("--dry-run", "--jobspec", "-", stdin=path.read_text())
    assert json.loads(from_stdin.stdout) == expected


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "job command and arguments are missing"),
        (["-x", "true"], "exclusive can only be set with a node count"),
        (["-n", "0", "true"], "--ntasks must be >= 1"),
        (["-N", "x", "true"], "--nodes: invalid int value 'x'"),
        (["-n", "1", "--cores", "2", "true"], "can't be used with per-task options"),
        (["--gpus-per-node", "1", "--cores", "2", "true"], "--gpus-per-node requires --nodes"),
        (["--tasks-per-node", "1", "true"], "must specify node or core count"),
        (["-N2", "--cores", "3", "true"], "evenly divisible by node count"),
        (["--begin-time", "gibberish", "true"], '--begin-time: Invalid datetime: "gibberish"'),
        (["--begin-time", "+inf", "true"], "--begin-time: expected a duration that ends"),
        (["--env-file", "/nosuch", "true"], "--env: /nosuch: No such file"),
        (["-S", "^x=/nosuch", "true"], "--setattr: /nosuch: No such file"),
        (["-o", "a..b", "true"], "--setopt: expected KEY=VALUE"),
        (["--cc=1", "--bcc=1", "true"], "specify only one of --cc or --bcc"),
        (["--cc=x", "true"], "--cc: expected an idset"),
        (["--bcc=", "true"], "--bcc: expected at least one id, got ''"),
        (["--requires=((", "true"], "--requires: expected a term, got 'the end' in '(('"),
        (["--signal=USR3", "true"], "--signal: Invalid signal USR3"),
        (["--signal=@inf", "true"], "--signal: expected a duration that ends, got 'inf'"),
        (["--rlimit=nosuch", "true"], "--rlimit: No corresponding rlimit matching"),
        (["--cc=1", "{nosuch}"], "Invalid replacement string in command: '{nosuch}'"),
        (["-N", "3", "-n", "2", "true"], "node count must not be greater than task count"),
        (["-t", "5x", "true"], '--time-limit: expected a finite duration such as "30s"'),
        (["-t", "-5", "true"], "--time-limit: expected a finite duration"),
        (["-t", "inf", "true"], "--time-limit: expected a finite duration"),
        (["-t", "nan", "true"], "--time-limit: expected a finite duration"),
        (["--urgency", "32", "true"], "--urgency: expected 0 to 31, default, hold, expedite"),
        (["--urgency", "high", "true"], "got 'high'"),
        (["--requires", "a|", "true"], "--requires: expected a term"),
        (["--requires", "nosuch:x", "true"], "jobspec.attributes.system.constraints"),
        (["-S", f"user.x={DEEP}", "true"], "--setattr: user.x: expected less deeply nested JSON"),
        (["--setopt", f"x={DEEP}", "true"], "--setopt: x: expected less deeply nested JSON"),
        (["--setattr", "a..b=1", "true"], "--setattr: expected KEY=VALUE with a dotted key"),
        (["--setattr", "job=1", "true"], "jobspec.attributes.system.job: expected an object"),
        (["--env", "X=$NOSUCH", "true"], "--env: 'X=$NOSUCH': there is no variable 'NOSUCH'"),
        (["--flags", "waitable,nosuch", "true"], "--flags: Unknown flag nosuch"),
        (["--jobspec", "/nosuch.json"], "/nosuch.json: No such file or directory"),
        (["--jobspec", "-"], "jobspec: expected"),
        (["--jobspec", "-", "true"], "expected --jobspec or a command, got both"),
    ],
)
def test_what_makes_no_jobspec_is_one_line_and_exit_code_1(args: list[str], message: str) -> None:
    result = submit(*args, stdin="{]")
    assert result.stderr.startswith("flux-trio submit: ERROR: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize("args", [["--nosuch"], ["--quiet=x"]])
def test_wrong_usage_is_exit_code_2(args: list[str]) -> None:
    result = submit(*args)
    assert result.exit_code == 2
