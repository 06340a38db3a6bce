"""Write the reference page of the command from its own help: `python -m docs.make_cli`.

A test holds the page in the tree against this.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from flux_trio.cli import main

PAGE = Path(__file__).parent / "reference" / "cli.md"

INTRODUCTION = """\
# The command

<!-- Made from the command's own help by `python -m docs.make_cli`; not to be edited. -->

{about}

Job ids are taken in every form of RFC 19 but emoji: `ƒuZZybuNNy` (or `fuZZybuNNy`), decimal,
`0x` hexadecimal, dotted hexadecimal, mnemonic words and KVS path. Durations are in Flux Standard
Duration (RFC 23): `30`, `1.5h`, `100ms`.

What fails is told in one line on standard error, `flux-trio COMMAND: ERROR: text`, with exit
code 1; wrong usage has exit code 2. Ctrl-C ends a command by SIGINT, which is 130 to a shell,
unless the command says otherwise. Text is plain when it does not go to a terminal.
"""


def page() -> str:
    """The whole page."""
    about = INTRODUCTION.format(about=_prose(main))
    return "\n".join([about, *_sections(main, click.Context(main, info_name="flux-trio"), 2)])


def _sections(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        yield f"{'#' * level} {inner.command_path}\n"
        if isinstance(command, click.Group):
            yield f"{_prose(command)}\n"
            yield from _sections(command, inner, level + 1)
        else:
            yield from _command(command, inner)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    yield f"{_prose(command)}\n"
    declared = [param for param in command.params if isinstance(param, click.Option)]
    records = [option.get_help_record(context) for option in declared]
    options = [(name, " ".join(text.split())) for name, text in filter(None, records)]
    if options:
        rows = [f"| `{name.replace('|', chr(92) + '|')}` | {text} |" for name, text in options]
        yield "\n".join(["| option | |", "|---|---|", *rows, ""])


def _prose(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("{", "`{").replace("}", "}`")


if __name__ == "__main__":
    PAGE.write_text(page())
