"""`flux-trio help`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flux_trio.cli import main
from flux_trio.cli.terminal.manual import man_page, subcommands


def run(*words: str) -> str:
    return CliRunner().invoke(main, ["help", *words], prog_name="flux-trio").output


def test_without_a_terminal_the_text_is_that_of_the_option() -> None:
    arguments = ["queue", "list", "--help"]
    expected = CliRunner().invoke(main, arguments, prog_name="flux-trio").output
    assert expected.startswith("Usage: flux-trio queue list ")
    assert run("queue", "list") == expected


def test_without_a_verb_the_commands_are_listed() -> None:
    assert "  bulksubmit " in run()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["quue"], "flux-trio: ERROR: No such command 'quue'. Did you mean 'queue'? (see "),
        (
            ["queue", "lst"],
            "flux-trio queue: ERROR: No such command 'lst'. Did you mean 'list'? "
            "(see flux-trio queue --help)\n",
        ),
        (["run", "fast"], "flux-trio run: ERROR: No such command 'fast'. (see flux-trio run --"),
    ],
)
def test_unknown_command_is_told_as_when_it_is_run_with_what_was_meant(
    words: list[str], error: str
) -> None:
    done = CliRunner().invoke(main, ["help", *words], prog_name="flux-trio")
    assert done.exit_code == 2
    assert error in done.output


def test_on_a_terminal_man_shows_the_page(tmp_path: Path) -> None:
    man = tmp_path / "man"
    man.write_text('#!/bin/sh\necho "man shows $(basename "$1")"\nhead -n 1 "$1"\nexit 16\n')
    man.chmod(0o755)
    ours, theirs = pty.openpty()
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "flux_trio", "help", "job", "id"],
        stdout=theirs,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": path},
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "man shows flux-trio-job-id.1" in shown
    assert '.TH "FLUX-TRIO-JOB-ID" 1' in shown
    assert done.returncode == 16  # that of man


def test_text_that_looks_like_roff_is_shown_as_it_is() -> None:
    @click.group()
    def top() -> None:
        """Do this.

        .PP is no macro here, 'tis neither, \\n is no escape, and a-b is one word. `code` is bold.
        """

    @top.command(hidden=True)
    def hidden() -> None:
        pass

    context = click.Context(top, info_name="top")
    page = man_page(context)
    assert r"\&.PP is no macro here, 'tis neither, \en is no escape, and a\-b is one word." in page
    assert r"\fBcode\fP" in page
    assert list(subcommands(context)) == []
