"""Finds the instance: first by the environment, then by its state directory.

The order is `FLUX_TRIO_URI` (unix://PATH, ws://HOST:PORT with `FLUX_TRIO_TOKEN`, or local://DIR,
also as FLUX_URI has it, local://DIR/local-0),
then the state directory `FLUX_TRIO_STATEDIR`, then the state directory in the user's own runtime
directory. A state directory has the Unix socket `local`, which needs no token, or the files `uri`
and `token`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from flux_trio.client.errors import AccessDenied, InstanceStarting, NoInstance
from flux_trio.formats import FormatError, parse_fluid
from flux_trio.messages.address import socket_path, uri_of_socket
from flux_trio.process.private import opener, read_private

URI_VARIABLE: Final = "FLUX_TRIO_URI"
TOKEN_VARIABLE: Final = "FLUX_TRIO_TOKEN"
FLUX_URI_VARIABLE: Final = "FLUX_URI"  # by which Flux's own programs find an instance
STATEDIR_VARIABLE: Final = "FLUX_TRIO_STATEDIR"
INSIDE_VARIABLE: Final = "FLUX_TRIO_INSIDE"
"""In the command of an instance: the state directory, as the instance has set it."""

JOB_VARIABLE: Final = "FLUX_JOB_ID"
TASK_VARIABLE: Final = "FLUX_TASK_RANK"
MARK_VARIABLE: Final = "FLUX_TRIO_SHELL"  # of the shell host: its jobs around a task, with dots
URI_FILE: Final = "uri"
SOCKET_FILE: Final = "local"
NATIVE_FILE: Final = "local-0"  # the socket for Flux's own programs
LOCAL_SCHEME: Final = "local://"  # followed by a state directory
TOKEN_FILE: Final = "token"  # only its owner may read it: the token gives the owner's rights

BACKUP_FILE: Final = "backup.json"  # in a backup, in which no instance starts

STARTING_FILE: Final = "starting"  # locked while an instance is starting
STARTING_POLL_S: Final = 0.05
SLOW_S: Final = 2.0  # a command that waits longer says for what

HOW_TO_START: Final = "start one with `flux-trio start`"


class Address(NamedTuple):
    """The address of an instance, and the token that identifies the client; "" for a socket."""

    uri: str
    token: str


def find_instance(environ: Mapping[str, str]) -> Address:
    """Return the address of the instance that `environ` selects.

    Raises NoInstance if there is none, InstanceStarting if it cannot be reached yet, and
    AccessDenied if its token must not be read.
    """
    uri = environ.get(URI_VARIABLE, "")
    if uri.startswith(LOCAL_SCHEME):
        path = Path(uri.removeprefix(LOCAL_SCHEME))
        return _read_statedir(path.parent if path.name == NATIVE_FILE else path)
    if socket_path(uri) is not None:
        return Address(uri, "")
    if uri:
        token = environ.get(TOKEN_VARIABLE, "")
        if not token:
            raise NoInstance("FLUX_TRIO_URI is set and FLUX_TRIO_TOKEN is not: set both or neither")
        return Address(uri, token)
    if STATEDIR_VARIABLE in environ:
        return _read_statedir(Path(environ[STATEDIR_VARIABLE]))
    statedir = default_statedir(environ)
    _check_owner(statedir)
    return _read_statedir(statedir)


async def await_instance(
    environ: Mapping[str, str], tell: Callable[[str], None] | None = None
) -> Address:
    """Return what `find_instance` does, after an instance that is starting has started.

    Waits as long as the process that starts it lives: a large state takes its time. After SLOW_S
    seconds `tell` gets a text that says so.
    """
    import anyio

    tell_at = anyio.current_time() + SLOW_S
    while True:
        try:
            return find_instance(environ)
        except InstanceStarting as error:
            if tell is not None and anyio.current_time() >= tell_at:
                tell(f"{error}: waiting for it")
                tell = None
        await anyio.sleep(STARTING_POLL_S)


def is_in_job(environ: Mapping[str, str]) -> bool:
    """Whether this process is a task of a job, of flux-trio or of flux-core."""
    return JOB_VARIABLE in environ and (is_of_ours(environ) or FLUX_URI_VARIABLE in environ)


def is_of_ours(environ: Mapping[str, str]) -> bool:
    """Whether a flux-trio is around this process, and the job is its own.

    In a job of a real Flux that itself runs in a job of a flux-trio, the variables are those of the
    outer one. The mark of that one's shell host ends with the number of another job then.
    """
    if not (STATEDIR_VARIABLE in environ or URI_VARIABLE in environ):
        return False
    marked = environ.get(MARK_VARIABLE, "").rpartition(".")[2]
    try:
        return not marked.isdecimal() or int(marked) == parse_fluid(environ.get(JOB_VARIABLE, ""))
    except FormatError:
        return True  # what is wrong with the id is said when the job is looked up


def is_further_task(environ: Mapping[str, str]) -> bool:
    """Whether this process is a task other than the first, which runs the instance."""
    return is_in_job(environ) and environ.get(TASK_VARIABLE, "0") != "0"


def default_statedir(environ: Mapping[str, str]) -> Path:
    """Return the default state directory of this user's instance."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime, "flux-trio")
    return Path(f"/tmp/flux-trio-{os.getuid()}")  # made with mode 0700, checked before use


def _check_owner(statedir: Path) -> None:
    """Refuse a foreign directory: anybody can make one in /tmp and would get our jobs."""
    if statedir.is_symlink():
        raise AccessDenied(f"{statedir} is a link: remove it, or set FLUX_TRIO_STATEDIR")
    try:
        owner = statedir.stat().st_uid
    except FileNotFoundError:
        return  # the error for the missing files in it is clearer
    if owner != os.getuid():
        raise AccessDenied(f"{statedir} belongs to userid {owner}, not to you: remove it")


def _read_statedir(statedir: Path) -> Address:
    local = statedir / SOCKET_FILE
    try:
        if local.is_socket():
            return Address(uri_of_socket(str(local.absolute())), "")
        uri = read_private(statedir / URI_FILE).decode().strip()
        token = read_private(statedir / TOKEN_FILE).decode().strip()
    except (FileNotFoundError, NotADirectoryError):
        if _is_starting(statedir):
            raise InstanceStarting(f"the instance in {statedir} is still starting") from None
        raise NoInstance(f"no instance runs in {statedir}: {HOW_TO_START}") from None
    except PermissionError as error:
        raise AccessDenied(f"{error.filename} may not be read: it is another user's") from None
    except OSError as error:  # a link: its target would be sent to the address
        raise AccessDenied(f"{error.filename}: {error.strerror}") from None
    return Address(uri, token)


def _is_starting(statedir: Path) -> bool:
    """Whether a process holds the lock that shows an instance which is starting."""
    try:
        with open(statedir / STARTING_FILE, opener=opener) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
