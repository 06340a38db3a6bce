"""The state directory of an instance: its files, and who may open them.

The state file is the kvs's; tokens survive a restart; the other files tell commands where the
instance listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.broker import LOG_FILE, OLDER_LOG_FILE, TokenEntry, Tokens
from flux_trio.client import NATIVE_FILE, SOCKET_FILE, STARTING_FILE, TOKEN_FILE, URI_FILE
from flux_trio.config import Config
from flux_trio.editions import CLASSIC
from flux_trio.formats import FormatError
from flux_trio.jobtap.loading import PLUGINS_DIRECTORY
from flux_trio.messages import ROLE_OWNER
from flux_trio.process.private import foreign_below, opener, read_private
from flux_trio.shell.protocol import SHELL_DIRECTORY
from flux_trio.store.living import NOTE_FILE
from flux_trio.store.original import note_inode
from flux_trio.store.room import RESERVE_FILE, suppress_no_room

STATE_FILE: Final = "state.sqlite"
TOKENS_FILE: Final = "tokens.json"
EDITION_FILE: Final = "edition"
HELD_FILE: Final = "held"  # what a plugin did when it ended the process
LOG_FILES: Final = (LOG_FILE, OLDER_LOG_FILE)
SOCKET_MODE_OWNER: Final = 0o600
SOCKET_MODE_ALL: Final = 0o666  # access is checked for each connection
STATEDIR_MODE_ALL: Final = 0o711  # gives access to the socket by name; other files are private

_OWN: Final = (
    STATE_FILE, TOKENS_FILE, LOG_FILE, URI_FILE, TOKEN_FILE, STARTING_FILE, SOCKET_FILE,
    NATIVE_FILE, SHELL_DIRECTORY, PLUGINS_DIRECTORY, NOTE_FILE, RESERVE_FILE, EDITION_FILE,
    HELD_FILE,
)  # fmt: skip
"""The files and directories of an instance. Others of it have such a name, and more after - or ."""

_OWN_BEGIN: Final = tuple(f"{name}{mark}" for name in _OWN for mark in "-.")


def foreign_file(statedir: Path) -> str:
    """Return which file of an instance in `statedir` is not its user's alone, and why; else "".

    Other files may be there: no instance opens them. Modes that let others read its files are taken
    away. Plugins may be links: they are checked when they are loaded. Raises OSError.
    """
    for path in sorted(statedir.iterdir()):
        if path.name in _OWN or path.name.startswith(_OWN_BEGIN):
            found = foreign_below(path, named_by_user=path.name == PLUGINS_DIRECTORY)
            if found:
                return found
    return ""


def other_edition(statedir: Path, edition: str) -> str:
    """Return why no instance of `edition` can start in `statedir`, "" if one can.

    What is stored there is in the words of the edition that its first instance spoke: a new
    directory gets a note of `edition`, and one without a note is classic. Raises OSError.
    """
    path = statedir / EDITION_FILE
    if not (statedir / STATE_FILE).exists():
        write_private(path, f"{edition}\n")
        return ""
    try:
        stored = read_private(path).decode().strip()
    except FileNotFoundError:
        stored = CLASSIC.name
    if stored == edition:
        return ""
    return (
        f"{statedir} has the state of an instance of edition {stored}, and this one would speak "
        f"{edition}. Nothing was converted: start with --edition {stored}, or let an instance of "
        f"edition {edition} begin in another directory"
    )


@contextmanager
def address_files(statedir: Path | None, uri: str, token: str) -> Iterator[None]:
    """Keep files in `statedir` by which commands find the instance, during the block.

    On a full disk the socket is there alone, so that its user can make room. The files are removed
    while the store is still locked, so no other instance can have written them. The note by which a
    copy of the directory is recognised stays. Raises OSError and StoreError.
    """
    if statedir is None or not uri:
        yield
        return
    note_inode(statedir / STATE_FILE)
    token_file, uri_file = statedir / TOKEN_FILE, statedir / URI_FILE
    try:
        for path, text in ((token_file, token), (uri_file, uri)):
            path.unlink(missing_ok=True)  # an instance that was killed has left it
            with suppress_no_room():
                write_private(path, text)
        yield
    finally:
        for path in (uri_file, token_file, statedir / SOCKET_FILE, statedir / NATIVE_FILE):
            path.unlink(missing_ok=True)


def open_to_guests(statedir: Path, config: Config) -> int:
    """Make `statedir` accessible if guests are allowed; return the mode of the socket in it."""
    if not config.access.allow_guest_user:
        return SOCKET_MODE_OWNER
    statedir.chmod(STATEDIR_MODE_ALL)
    return SOCKET_MODE_ALL


def tokens_in(statedir: Path | None, make_token: Callable[[], str]) -> Tokens:
    """Return the tokens, which are stored in `statedir` unless it is None. Raises FormatError.

    The owner gets a new token at each start: it need not be stored, so that a start needs no room.
    """
    if statedir is None:
        return Tokens(make_token, lambda _entries: None)
    path = statedir / TOKENS_FILE

    guests = _of_guests(_stored_tokens(path))
    stored = guests

    def save(entries: list[TokenEntry]) -> None:
        nonlocal stored
        with suppress_no_room() if _of_guests(entries) == stored else nullcontext():
            write_private(path, msgspec.json.encode(entries).decode())
        stored = _of_guests(entries)

    return Tokens(make_token, save, guests)


def _of_guests(entries: list[TokenEntry]) -> list[TokenEntry]:
    return [entry for entry in entries if not entry.rolemask & ROLE_OWNER]


def _stored_tokens(path: Path) -> list[TokenEntry]:
    """Return the tokens stored by an earlier run; FormatError if the file is damaged."""
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(read_private(path), type=list[TokenEntry])
    except msgspec.DecodeError as error:
        raise FormatError.of_msgspec(error).at(str(path)) from None


def write_private(path: Path, text: str) -> None:
    """Replace a file that only this user can read by `text`, atomically.

    Raises OSError that names the file.
    """
    draft = path.with_name(path.name + ".new")
    try:
        draft.unlink(missing_ok=True)
        with open(draft, "x", opener=opener) as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
