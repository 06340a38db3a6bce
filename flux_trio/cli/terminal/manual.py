"""A man page of each command, made from the command's own help.

The text is roff with the macros of man(7), which man-db, mandoc and groff read.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import click

from flux_trio._version import __version__
from flux_trio.cli.terminal.examples import examples

SECTION: Final = "1"
_MACRO = re.compile(r"^[.']", re.MULTILINE)
_CODE = re.compile(r"`([^`]*)`")


def page_name(context: click.Context) -> str:
    """Return the name of a command's man page, as `flux-trio-queue-list`."""
    return context.command_path.replace(" ", "-")


def man_page(context: click.Context) -> str:
    """Return the man page of the command of `context`."""
    return "".join(f"{line}\n" for line in _lines(context))


def subcommands(context: click.Context) -> Iterator[click.Context]:
    """Yield a context for each visible command below that of `context`, in the order of its help.

    Nothing, if it is not a group.
    """
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None and not command.hidden:
                yield click.Context(command, parent=context, info_name=name)


def help_of(command: click.Command) -> str:
    """Return the text of a command's help: paragraphs, without the options."""
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _lines(context: click.Context) -> Iterator[str]:
    command, name = context.command, page_name(context)
    yield f'.TH "{name.upper()}" {SECTION} "" "flux-trio {__version__}" "Flux Manual"'
    yield ".SH NAME"
    yield rf"{_escaped(name)} \- {_escaped(command.get_short_help_str(limit=200))}"
    yield ".SH SYNOPSIS"
    usage = " ".join(command.collect_usage_pieces(context))
    yield rf"\fB{_escaped(context.command_path)}\fP {_escaped(usage)}"
    yield ".SH DESCRIPTION"
    for paragraph in help_of(command).split("\n\n"):
        yield ".PP"
        yield _prose(paragraph)
    declared = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in declared]
    if options := [record for record in records if record is not None]:
        yield ".SH OPTIONS"
        for option, text in options:
            yield ".TP"
            yield rf"\fB{_escaped(option)}\fP"
            yield _prose(text)
    if found := examples(context):
        yield ".SH EXAMPLES"
        for line, what in found.items():
            yield ".TP"
            yield rf"\fB{_escaped(line)}\fP"
            yield _prose(what)
    if below := list(subcommands(context)):
        yield ".SH COMMANDS"
        for each in below:
            yield ".TP"
            yield rf"\fB{_escaped(page_name(each))}\fP({SECTION})"
            yield _prose(each.command.get_short_help_str(limit=200))
    if context.parent is not None:
        yield ".SH SEE ALSO"
        yield rf"\fB{_escaped(page_name(context.parent))}\fP({SECTION})"


def _prose(text: str) -> str:
    return _CODE.sub(r"\\fB\1\\fP", _escaped(text))


def _escaped(text: str) -> str:
    r"""Return text that roff shows as it is: `\` and `-` escaped, no line that is a macro."""
    return _MACRO.sub(r"\\&\g<0>", text.replace("\\", r"\e").replace("-", r"\-"))
