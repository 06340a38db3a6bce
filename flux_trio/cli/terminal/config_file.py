"""A configuration that a command reads from a file which the user has named."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.config import Config, parse_config, read_config
from flux_trio.formats import FormatError
from flux_trio.process.private import untrusted


def read_config_file(
    file: str | Path, edition: str | None = None, *, trusted: bool = False
) -> Config:
    """Read a file of TOML or JSON; `-` is standard input. Tells what is ignored.

    `edition` counts more than that of the file. Unless it is `trusted`, nobody else may have
    written it: it names commands and plugins. The CommandError says what is wrong.
    """
    where = "standard input" if str(file) == "-" else str(file)
    try:
        if str(file) != "-" and not trusted and (reason := untrusted(Path(file))):
            raise CommandError(reason)
        with click.open_file(str(file), encoding="utf-8") as opened:
            text = opened.read()
        if text.lstrip().startswith("{"):
            return read_config(msgspec.json.decode(text), where, remark, edition)
        return parse_config(text, where, remark, edition)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except UnicodeError as error:
        raise CommandError(f"{where}: expected text in UTF-8: {error}") from None
    except msgspec.DecodeError as error:
        raise CommandError(f"{where}: {error}") from None
    except FormatError as error:
        raise CommandError(str(error)) from None
