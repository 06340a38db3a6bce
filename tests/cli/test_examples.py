"""The examples in the help of the commands are examples of these commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flux_trio.cli import main
from flux_trio.cli.terminal.examples import EXAMPLES, examples
from flux_trio.cli.terminal.manual import subcommands

SHELL = {"|", "&&", ">", ">>", "<"}
"""Words after which a line belongs to the shell."""


def commands(context: click.Context) -> Iterator[click.Context]:
    below = list(subcommands(context))
    for each in below:
        yield from commands(each)
    if not isinstance(context.command, click.Group):
        yield context


ALL = list(commands(click.Context(main, info_name="flux-trio")))
LINES = [line for context in ALL for line in examples(context)]


def test_every_command_has_two_examples() -> None:
    counts = {context.command_path: len(examples(context)) for context in ALL}
    assert {name: count for name, count in counts.items() if count != 2} == {}
    assert len(LINES) == sum(map(len, EXAMPLES.values())), "an example of an unknown command"


def test_each_command_takes_the_words_of_its_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["jobtap", "new", "mine"]).exit_code == 0
    for line in LINES:
        words = shlex.split(line)[1:]
        end = next((place for place, word in enumerate(words) if word in SHELL), len(words))
        command: click.Command = main
        name, rest = None, words[:end]
        while isinstance(command, click.Group):
            name, found, rest = command.resolve_command(click.Context(command), rest)
            assert found is not None
            command = found
        try:
            command.make_context(name, rest)
        except click.ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")
