"""What shells offer while a command is typed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click.testing
import pytest
from click.shell_completion import get_completion_class

from flux_trio.cli import main
from tests.support.instance import FLUX_TRIO, OWN_VARIABLES, RunningInstance


@pytest.fixture(scope="module")
def instance(own_instance: RunningInstance) -> RunningInstance:
    return own_instance


def offered(*words: str) -> list[str]:
    """What is offered for the last of the words."""
    kind = get_completion_class("bash")
    assert kind is not None
    complete = kind(main, {}, "flux-trio", "_FLUX_TRIO_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["sub"], ["submit"]),
        (["job", "wait"], ["wait", "wait-event"]),
        (["submit", "--no"], ["--nodes"]),
        (["submit", "--quiet", "--no"], ["--nodes"]),
        (["job", "id", "--to", "do"], ["dothex"]),
        (["submit", "-n", "2", "./x"], ["./x"]),  # a file, for which the shell looks
        (["simulate", "--policy", "fifo,e"], ["fifo,easy"]),
        (["simulate", "--plugin", "mult"], ["multifactor"]),
        (["jobtap", "load", "hold"], ["hold-until"]),
    ],
)
def test_commands_options_and_choices_are_offered(words: list[str], values: list[str]) -> None:
    assert offered(*words) == values


def test_every_command_is_offered() -> None:
    assert set(main.list_commands(click.Context(main))) == set(offered(""))


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_is_for_the_shell(shell: str) -> None:
    told = click.testing.CliRunner().invoke(main, ["completion", shell], prog_name="flux-trio")
    assert told.exit_code == 0
    assert f"_FLUX_TRIO_COMPLETE={shell}_complete" in told.stdout


@pytest.mark.real
def test_bash_takes_the_script_and_completes(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        click.testing.CliRunner().invoke(main, ["completion", "bash"]).stdout
        + 'COMP_WORDS=(flux-trio subm); COMP_CWORD=1; _flux_trio_completion "$0"; echo "$COMPREPLY"'
    )
    program = tmp_path / "flux-trio"
    program.write_text(f'#!/bin/sh\nexec {" ".join(FLUX_TRIO)} "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f". {script}", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "submit\n"


@pytest.mark.real
def test_ids_of_active_jobs_are_offered(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OWN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLUX_TRIO_STATEDIR", str(instance.statedir))
    held = instance.submitted("--urgency=hold", "true")
    assert offered("job", "info", "") == [held]
    assert offered("cancel", "f") == [f"f{held[1:]}"]
    assert offered("cancel", "1") == []


@pytest.mark.real
def test_names_that_the_instance_knows_are_offered(
    instance: RunningInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OWN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLUX_TRIO_STATEDIR", str(instance.statedir))
    config = tmp_path / "queues.toml"
    config.write_text("[queues.batch]\n[queues.debug]\n")
    instance.ok("config", "load", config)
    instance.ok("jobtap", "new", "--dir", tmp_path, "mine")
    instance.ok("jobtap", "load", tmp_path / "mine.py")
    host = instance.ok("resource", "R").partition('"nodelist":["')[2].partition("[")[0]
    assert offered("queue", "stop", "") == ["batch", "debug"]
    assert offered("jobs", "--queue", "batch,d") == ["batch,debug"]
    assert offered("submit", "-q", "b") == ["batch"]
    assert offered("resource", "drain", f"{host}0,") == [f"{host}0,{host}{n}" for n in range(2)]
    assert offered("module", "remove", "job-e") == ["job-exec"]
    assert offered("jobtap", "remove", "") == ["mine"]
    instance.ok("jobtap", "remove", "mine")
    instance.ok("config", "reload")  # without queues, as other tests have it


def test_without_an_instance_no_ids_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUX_TRIO_STATEDIR", str(tmp_path))
    assert offered("cancel", "") == []
