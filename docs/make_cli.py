"""Write the reference of the command from its own help: `python -m docs.make_cli [MAN_DIRECTORY]`.

There is a page for each command, and one that lists them. With a directory, a man page of each
command is written into it too. A test holds the pages in the tree against this.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from flux_trio.cli import main
from flux_trio.cli.app import HEADINGS
from flux_trio.cli.terminal.examples import examples
from flux_trio.cli.terminal.manual import help_of, man_page, page_name, subcommands

DIRECTORY: Final = Path(__file__).parent / "reference"

INTRODUCTION: Final = """\
# The command

<!-- Made from the command's own help by `python -m docs.make_cli`; not to be edited. -->

{about}

`flux-trio help COMMAND` shows the man page of a command, such as `flux-trio help queue list`.

Job ids are taken in every form of RFC 19 but emoji: `ƒuZZybuNNy` (or `fuZZybuNNy`), decimal,
`0x` hexadecimal, dotted hexadecimal, mnemonic words and KVS path. Durations are in Flux Standard
Duration (RFC 23): `30`, `1.5h`, `100ms`. Ids are printed with f in place of ƒ in a
locale that is not UTF-8, or if FLUX_F58_FORCE_ASCII is set.

Words and names of files are bytes. Those of a jobspec or of a message, such as a reason, have to be
UTF-8 in any locale, and so has the path of a state directory: others are refused, by name.

What fails is told in one line on standard error, `flux-trio COMMAND: ERROR: text`, with exit
code 1; wrong usage has exit code 2. Ctrl-C ends a command by SIGINT, which is 130 to a shell,
unless the command says otherwise. Text is plain when it does not go to a terminal.

| command | |
|---|---|
{rows}

```{{toctree}}
:hidden:

{names}
```
"""

PAGE: Final = """\
# {title}

<!-- Made from the command's own help by `python -m docs.make_cli`; not to be edited. -->

{sections}"""


def pages() -> dict[str, str]:
    """What each page holds, by its path below `DIRECTORY`."""
    commands = list(subcommands(_root()))
    by_name = {context.info_name: _row(context) for context in commands}
    rows = "\n".join(
        row
        for heading, names in HEADINGS.items()
        for row in (f"| **{heading}** | |", *(by_name[name] for name in names))
    )
    names = "\n".join(f"cli/{context.info_name}" for context in commands)
    index = INTRODUCTION.format(about=_prose(main), rows=rows, names=names)
    return {"cli.md": index} | {
        f"cli/{context.info_name}.md": PAGE.format(
            title=context.command_path, sections="\n".join(_section(context, 2))
        )
        for context in commands
    }


def man_pages() -> dict[str, str]:
    """The man page of each command, by the name of its file."""
    return {f"{page_name(context)}.1": man_page(context) for context in _all(_root())}


def _root() -> click.Context:
    return click.Context(main, info_name="flux-trio")


def _all(context: click.Context) -> Iterator[click.Context]:
    yield context
    for each in subcommands(context):
        yield from _all(each)


def _row(context: click.Context) -> str:
    below = ", ".join(f"`{each.info_name}`" for each in subcommands(context))
    text = context.command.get_short_help_str(limit=200) + (f" ({below})" if below else "")
    return f"| [{context.info_name}](cli/{context.info_name}.md) | {text} |"


def _section(context: click.Context, level: int) -> Iterator[str]:
    """The text of a command; then those below it, each with its heading."""
    if not isinstance(context.command, click.Group):
        yield from _command(context)
        return
    yield f"{_prose(context.command)}\n"
    for each in subcommands(context):
        yield f"{'#' * level} {each.command_path}\n"
        yield from _section(each, level + 1)


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    yield f"{_prose(command)}\n"
    declared = [param for param in command.params if isinstance(param, click.Option)]
    records = [option.get_help_record(context) for option in declared]
    options = [(name, " ".join(text.split())) for name, text in filter(None, records)]
    if options:
        rows = [f"| `{name.replace('|', chr(92) + '|')}` | {text} |" for name, text in options]
        yield "\n".join(["| option | |", "|---|---|", *rows, ""])
    lines = [f"$ {line}\n    {what}" for line, what in examples(context).items()]
    yield "\n".join(["```text", *lines, "```\n"])


def _prose(command: click.Command) -> str:
    return help_of(command).replace("{", "`{").replace("}", "}`")


def write(pages: dict[str, str], directory: Path) -> None:
    """Write `pages` into `directory`, by their paths."""
    for name, text in pages.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m docs.make_cli", description=__doc__)
    parser.add_argument("man_directory", nargs="?", type=Path, help="write the man pages there")
    man_directory = parser.parse_args().man_directory
    write(pages(), DIRECTORY)
    if man_directory is not None:
        write(man_pages(), man_directory)
