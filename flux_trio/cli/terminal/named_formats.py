"""Formats by name: those of a command, and the user's own (flux-jobs(1)).

As in flux, the user's formats are in the table `formats` of `flux-jobs.toml` (for `flux-trio jobs`)
in `flux/` below XDG_CONFIG_HOME and each of XDG_CONFIG_DIRS: `[formats.NAME]` with `format` and
optionally `description`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from flux_trio.cli.terminal.columns import Fields, Layout
from flux_trio.cli.terminal.errors import CommandError


@dataclass(frozen=True)
class NamedFormat:
    format: str
    description: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    formats: dict[str, NamedFormat] = {}


def choose_layout(
    text: str | None, tool: str, builtin: Mapping[str, NamedFormat], fields: Fields
) -> Layout:
    """Return the layout of the format that `choose_format` returns. Raises CommandError."""
    return Layout(choose_format(text, tool, builtin), fields)


def choose_format(text: str | None, tool: str, builtin: Mapping[str, NamedFormat]) -> str:
    """Return the format that `text` is or names; by default that of FLUX_TOOL_FORMAT_DEFAULT.

    `help` and `get-config=NAME` print, and end the command. Raises CommandError for an unknown
    name, and for a file that cannot be read.
    """
    if text is None:
        text = os.environ.get(f"{tool.upper().replace('-', '_')}_FORMAT_DEFAULT", "default")
    if text in builtin:
        return builtin[text].format
    known = {**_read_files(tool), **builtin}
    if text == "help":
        _print_help(tool, known)
        click.get_current_context().exit()
    if text.startswith("get-config="):
        _print_config(text.removeprefix("get-config="), known)
        click.get_current_context().exit()
    if text in known:
        return known[text].format
    if "{" in text:
        return text
    guess = re.sub(r"\w+", r"{\g<0>}", text)
    raise CommandError(f"--format: No such format {text} (Did you mean '{guess}'?)")


def _read_files(tool: str) -> dict[str, NamedFormat]:
    found: dict[str, NamedFormat] = {}
    for directory in _directories():
        path = directory / f"{tool}.toml"
        try:
            found |= msgspec.toml.decode(path.read_bytes(), type=_File).formats
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from None
        except msgspec.DecodeError as error:
            raise CommandError(f"{path}: {error}") from None
    return found


def _directories() -> Iterator[Path]:
    """Yield the directories of format files, the user's own last."""
    shared = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    for each in reversed(shared.split(":")):
        yield Path(each) / "flux"
    own = os.environ.get("XDG_CONFIG_HOME")
    yield (Path(own) if own else Path.home() / ".config") / "flux"


def _print_help(tool: str, known: Mapping[str, NamedFormat]) -> None:
    click.echo(f"\nConfigured {tool} output formats:\n")
    width = max(map(len, known))
    for name, each in known.items():
        click.echo(f"  {name:<{width}}  {each.description}".rstrip())


def _print_config(name: str, known: Mapping[str, NamedFormat]) -> None:
    if name not in known:
        raise CommandError(f"No such format {name!r}")
    one = known[name]
    text = msgspec.json.encode(one.format).decode()
    description = msgspec.json.encode(one.description).decode()
    click.echo(f"[formats.{name}]\ndescription = {description}\nformat = {text}")
